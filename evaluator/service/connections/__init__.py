# SPDX-License-Identifier: GPL-3.0-or-later
"""How clients reach the service: addresses, sockets, who may come in, and what each connection may cost."""

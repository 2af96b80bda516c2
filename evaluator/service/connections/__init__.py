# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections of clients: addresses, sockets, authentication and limits."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients see of the service: connections, messages, sessions, networks, and what it shows over HTTP."""

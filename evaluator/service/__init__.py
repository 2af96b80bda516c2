# SPDX-License-Identifier: GPL-3.0-or-later
"""The client-facing service: connections, messages, sessions, served networks and the HTTP endpoints."""

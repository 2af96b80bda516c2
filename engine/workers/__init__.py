# SPDX-License-Identifier: GPL-3.0-or-later
"""Executors that play games: in this process, in several processes, or on the nodes of a cluster."""

MAX_WORKERS = 1024
"""Maximum worker processes on one machine."""

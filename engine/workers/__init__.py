# SPDX-License-Identifier: GPL-3.0-or-later
"""Where games are played: in this process, in several, or on the nodes of a cluster."""

MAX_WORKERS = 1024
"""Processes of one machine that the settings let play games."""

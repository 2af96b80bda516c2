# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP API and the page of `wavefront web`, as routes of the server in engine/analysis/listening.py."""

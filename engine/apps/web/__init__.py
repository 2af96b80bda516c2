# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront web`: the page, the HTTP API, and their server."""

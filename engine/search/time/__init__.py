# SPDX-License-Identifier: GPL-3.0-or-later
"""Time per move: the time manager, its inputs, and the reserve for delays.

docs/explanation/time.md explains the design.
"""

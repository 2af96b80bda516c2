# SPDX-License-Identifier: GPL-3.0-or-later
"""How long to think about a move: time managers, what they know, and what is kept back.

docs/explanation/time.md tells how it is meant, benchmarks/search/time_management.py plays it through.
"""

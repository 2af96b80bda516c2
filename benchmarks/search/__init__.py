# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of the search: speed, memory, move generation, tablebases and time management."""

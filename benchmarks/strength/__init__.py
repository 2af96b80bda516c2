# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of playing strength: games, simulated time, and single moves."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of the whole engine: start, matches, self-play, analysis."""

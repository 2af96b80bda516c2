# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of commits beside each other: compare.py and history.py, and what they build and measure with."""

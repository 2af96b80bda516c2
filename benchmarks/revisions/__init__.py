# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of two commits: building, measuring and reporting."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of two commits, compared, and what builds and measures them."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches: what a caller of one needs. The loop, a side's player and its strength lie in folders."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""Optimisers, their schedule, and the mean of the weights."""

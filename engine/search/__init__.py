# SPDX-License-Identifier: GPL-3.0-or-later
"""A single search: driver, batch sizes, limits, reports and the choice of the move."""

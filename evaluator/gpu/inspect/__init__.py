# SPDX-License-Identifier: GPL-3.0-or-later
"""Inspection of compiled kernels and of the machine, for `kernels` and `report`."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors' libraries of matrix products behind one interface."""

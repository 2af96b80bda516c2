# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor's GPU and compiler behind one interface."""

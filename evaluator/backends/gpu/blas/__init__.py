# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendors' matrix product libraries behind one interface."""

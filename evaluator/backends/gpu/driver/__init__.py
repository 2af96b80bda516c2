# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU drivers and kernel compilers of both vendors behind one interface."""

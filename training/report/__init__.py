# SPDX-License-Identifier: GPL-3.0-or-later
"""How well networks do on positions that an engine searched deeply."""

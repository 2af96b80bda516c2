# SPDX-License-Identifier: GPL-3.0-or-later
"""Games played and labelled by a UCI engine: many engines at once, positions of the games and beside them."""

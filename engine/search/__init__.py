# SPDX-License-Identifier: GPL-3.0-or-later
"""One search: what it does with a tree, when it ends, what it says, and which move is played."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""One side of a game: its tree, tasks, book, mate search and choice of the move."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics of a match's games: scores, Elo with error bars, SPRT."""

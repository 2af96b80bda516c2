# SPDX-License-Identifier: GPL-3.0-or-later
"""What the games of a match say: scores, Elo with error bars, SPRT."""

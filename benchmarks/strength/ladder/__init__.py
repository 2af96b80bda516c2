# SPDX-License-Identifier: GPL-3.0-or-later
"""One Elo scale of many players: the players, the fit, the choice of games, and the reports."""

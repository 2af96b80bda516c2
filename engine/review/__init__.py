# SPDX-License-Identifier: GPL-3.0-or-later
"""Reviews of games: judges each move, annotates the PGN, writes report pages.

judging     marks by lost expected score, decisive moments: pure functions
accuracy    the public formula of lichess
openings    names of openings
games       reads games, makes their reviews
searching   searches the positions of games on a search pool
annotating  the reviewed game as PGN
charts      SVG: course of a game, boards
pages       HTML: one page for each game, one for all
"""

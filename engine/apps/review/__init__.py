# SPDX-License-Identifier: GPL-3.0-or-later
"""Reviews of games: judges each move, annotates the PGN, writes report pages.

scale       win, draw and loss of a search on the scale of strong players' results
judging     marks by lost expected score, the move that lost the game: pure functions
reasons     why a move is a mistake, as facts
people      what people of a rating play
accuracy    the public formula of lichess
openings    names of openings
games       reads games, makes their reviews
searching   searches the positions of games on a search pool
annotating  the reviewed game as PGN
folder      the journal, pages and games of a review
pages       HTML: one page for each game (game.js) and one for all (index.js)
"""

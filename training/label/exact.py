# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels from Syzygy tables: the best moves, and scores that are mates or 0.

A win scores as a mate in 1 + k, k the plies to the next capture, pawn move or mate, this move included. So
the shortest progress is best, and against a bare king with a queen or a rook k is the distance to mate. Mate
on the board is a mate in 1. A loss is the reverse, and wins that the 50-move rule ends are draws.
"""

from __future__ import annotations

from random import Random

from engine._core import Game, Tablebases
from engine.apps.shards import move_code
from training.data.tablebases import result_of
from training.label.lines import MATE, Label

LONGEST = 900
"""Maximum of 1 + k."""


def exact_label(game: Game, tables: Tablebases, lines: int) -> Label | None:
    """Return the label of the current position, with at most that many lines; None if the tables do not have
    it. Moves of equal score are in a random order that depends on the position only."""
    if game.men > tables.most_men or tables.probe_wdl(game) is None:
        return None
    scored = []
    for move in game.legal_moves():
        score = _score(game, move, tables)
        if score is None:
            return None
        scored.append((move_code(move), score))
    Random(game.fen()).shuffle(scored)
    scored.sort(key=lambda each: -each[1])
    best, cp = scored[0]
    return Label(best, cp, tuple(scored[:lines]) if lines > 1 else ((best, cp),), exact=True)


def _score(game: Game, move: str, tables: Tablebases) -> int | None:
    """Return the score of a move for the side that makes it; None if the tables do not have the position."""
    after = game.copy()
    after.push_uci(move)
    result, _ = after.result()
    if result != "undecided":
        return 0 if result == "draw" else MATE - 1
    value = result_of(after, tables)
    if not value:
        return value
    plies = 1
    if after.rule50:  # Neither a capture nor a pawn move.
        distance = tables.probe_dtz(after)
        if distance is None:
            return None
        plies += abs(distance)
    return -value * (MATE - min(1 + plies, LONGEST))

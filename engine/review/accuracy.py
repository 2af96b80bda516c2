# SPDX-License-Identifier: GPL-3.0-or-later
"""Accuracy of moves and games by the formula of lichess (https://lichess.org/page/accuracy).

Its winning percentage comes from the pawns of the search, as there from Stockfish's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import fmean, harmonic_mean, pstdev

LEAST_WINDOW, MOST_WINDOW = 2, 8
LEAST_WEIGHT, MOST_WEIGHT = 0.5, 12.0


def winning_percentage(pawns: float) -> float:
    """Return lichess's winning percentage of a score in pawns, which it cuts at ten."""
    return 50 + 50 * (2 / (1 + exp(-0.368208 * max(-10.0, min(10.0, pawns)))) - 1)


def move_accuracy(before: float, after: float) -> float:
    """Return the accuracy of a move, 0 to 100. before, after: the mover's winning percentage."""
    if after >= before:
        return 100.0
    return min(100.0, max(0.0, 103.1668 * exp(-0.04354 * (before - after)) - 3.1669 + 1))


def game_accuracy(
    percentages: Sequence[float], white_begins: bool = True
) -> tuple[float | None, float | None]:
    """Return the accuracy of White and Black, None for a side without a move.

    percentages: White's winning percentage at the start and after each move. The result is the mean of two
    averages of the moves' accuracies: one weighted by the standard deviation of the percentages in a sliding
    window of a tenth of the game, and the harmonic mean.
    """
    moves = len(percentages) - 1
    if moves < 1:
        return None, None
    size = min(MOST_WINDOW, max(LEAST_WINDOW, moves // 10))
    windows = [percentages[:size]] * min(size - 2, moves)
    windows += [percentages[start : start + size] for start in range(len(percentages) - size + 1)]
    weights = [min(MOST_WEIGHT, max(LEAST_WEIGHT, pstdev(window))) for window in windows]
    sides: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for ply in range(moves):
        white = white_begins == (ply % 2 == 0)
        before, after = percentages[ply], percentages[ply + 1]
        if not white:
            before, after = 100 - before, 100 - after
        weight = weights[min(ply, len(weights) - 1)]
        sides[white].append((move_accuracy(before, after), weight))
    return _side(sides[True]), _side(sides[False])


def _side(moves: Sequence[tuple[float, float]]) -> float | None:
    if not moves:
        return None
    accuracies, weights = zip(*moves, strict=True)
    weighted = sum(a * w for a, w in moves) / sum(weights)
    return fmean((weighted, harmonic_mean(accuracies)))

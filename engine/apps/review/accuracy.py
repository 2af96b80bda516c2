# SPDX-License-Identifier: GPL-3.0-or-later
"""Accuracy of moves and games by the formula of lichess (https://lichess.org/page/accuracy).

Its winning percentage comes from the pawns of the search, as there from Stockfish's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import pstdev

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


def accuracies(
    percentages: Sequence[float], phases: Sequence[str], white_begins: bool = True
) -> dict[str, tuple[float | None, float | None]]:
    """Return the accuracy of White and Black by phase, and of the game by "".

    percentages: White's winning percentage at the start and after each move. phases: of each move. The game's
    is the mean of two averages of the moves' accuracies: one weighted by the standard deviation of the
    percentages in a sliding window of a tenth of the game, and the harmonic mean. So each move has a share in
    it, and a phase has the mean of its moves by these shares: the game's lies between its phases'.
    """
    moves = len(phases)
    size = min(MOST_WINDOW, max(LEAST_WINDOW, moves // 10))
    windows = [percentages[:size]] * min(size - 2, moves)
    windows += [percentages[start : start + size] for start in range(len(percentages) - size + 1)]
    weights = [min(MOST_WEIGHT, max(LEAST_WEIGHT, pstdev(window))) for window in windows]
    sides: dict[bool, list[tuple[str, float, float]]] = {True: [], False: []}
    for ply, phase in enumerate(phases):
        white = white_begins == (ply % 2 == 0)
        before, after = percentages[ply], percentages[ply + 1]
        if not white:
            before, after = 100 - before, 100 - after
        sides[white].append((phase, move_accuracy(before, after), weights[min(ply, len(weights) - 1)]))
    whites, blacks = _side(sides[True]), _side(sides[False])
    return {phase: (whites.get(phase), blacks.get(phase)) for phase in ("", *phases)}


def _side(moves: Sequence[tuple[str, float, float]]) -> dict[str, float]:
    """Return a side's accuracies. moves: phase, accuracy and weight of each of its moves."""
    weight = sum(each[2] for each in moves)
    # A harmonic mean is the mean with the reciprocal values as weights.
    reciprocals = [1 / max(accuracy, 1e-9) for _, accuracy, _ in moves]
    shares = [each[2] / weight + own / sum(reciprocals) for each, own in zip(moves, reciprocals, strict=True)]
    means = {}
    for phase in {"", *(each[0] for each in moves)} if moves else ():
        parts = [(a, share) for (own, a, _), share in zip(moves, shares, strict=True) if phase in ("", own)]
        means[phase] = round(sum(a * share for a, share in parts) / sum(share for _, share in parts), 1)
    return means

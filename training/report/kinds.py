# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds of positions that a report distinguishes: by pieces, best move, lines and score."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.report.positions import DeepPositions

MANY_MEN, FEW_MEN = 25, 12
"""Pieces from which a position counts as one of many, and up to which as one of few."""

CLOSE, CLEAR = 0.01, 0.05
"""Expected score between the first two lines: below CLOSE both moves are good, above CLEAR only one is."""

DECIDED = 0.4
"""Distance of the expected score from a half beyond which a position is decided."""


def kinds_of(positions: DeepPositions) -> dict[str, NDArray[np.bool_]]:
    """Return masks [n] by the name of the kind. A tactical best move captures, promotes or gives check."""
    men = np.zeros(len(positions), np.int64)
    tactical = np.zeros(len(positions), bool)
    for number, game in positions.games():
        move = game.legal_moves()[positions.best[number]]
        men[number] = game.men
        game.push_uci(move)
        tactical[number] = game.men < men[number] or len(move) > 4 or game.in_check
    gap = _gaps(positions)
    decided = np.abs(positions.value - 0.5) > DECIDED
    return {
        f"{MANY_MEN} men and more": men >= MANY_MEN,
        f"{FEW_MEN + 1} to {MANY_MEN - 1} men": (men > FEW_MEN) & (men < MANY_MEN),
        f"up to {FEW_MEN} men": men <= FEW_MEN,
        "best move quiet": ~tactical,
        "best move tactical": tactical,
        f"gap below {CLOSE:.0%}": gap < CLOSE,
        f"gap {CLOSE:.0%} to {CLEAR:.0%}": (gap >= CLOSE) & (gap <= CLEAR),
        f"gap above {CLEAR:.0%}": gap > CLEAR,
        "undecided": ~decided,
        "decided": decided,
    }


def _gaps(positions: DeepPositions) -> NDArray[np.float32]:
    """Return the expected score [n] between the best two of the listed moves."""
    scores = np.sort(np.where(positions.places != 255, positions.scores, -np.inf), axis=1)
    gap: NDArray[np.float32] = scores[:, -1] - scores[:, -2]
    return gap

# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares networks with deep labels: move choice, calibration and value error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.report.positions import DeepPositions, expected
from training.targets import sharpened

TEMPERATURES = np.geomspace(0.4, 4.0, 47)
"""Policy temperatures to evaluate, in factors of 1.05."""

VALUE_SCALES = np.geomspace(0.5, 2.0, 57)
"""Factors of the WDL's logits to evaluate, in steps of 2.5 %."""

BINS = 10
"""Calibration bins, by predicted expected score."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a network on some positions; *_error are standard errors of means.

    top1: share of positions where the policy's first move is the label's. regret: its loss of expected score.
    unlisted: share of positions without a label for that move. It then counts as the worst listed one, so the
    regret is a lower bound. log_loss: of the label's move at temperature 1; log_loss_best: at
    best_temperature.
    value_rmse, value_bias: of the expected score.
    """

    positions: int
    top1: float
    top1_error: float
    regret: float
    regret_error: float
    unlisted: float
    log_loss: float
    log_loss_best: float
    value_rmse: float
    value_bias: float


@dataclass(frozen=True, slots=True)
class NetworkReport:
    """Report of the network `name`. best_value_scale: with the least value_rmse. parts: all, games, branches,
    and further kinds. log_losses: of the policy on all positions, by TEMPERATURES. calibration: by part,
    [bins, 3]: mean predicted and mean labelled expected score, count."""

    name: str
    best_temperature: float
    best_value_scale: float
    parts: dict[str, Figures]
    log_losses: NDArray[np.float64]
    calibration: dict[str, NDArray[np.float64]]

    def data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "network": self.name,
            "best_temperature": self.best_temperature,
            "best_value_scale": self.best_value_scale,
            **{
                part: {name: getattr(figures, name) for name in Figures.__slots__}
                for part, figures in self.parts.items()
            },
            "policy": [
                {"temperature": float(t), "log_loss": float(loss)}
                for t, loss in zip(TEMPERATURES, self.log_losses, strict=True)
            ],
            "calibration": {part: points.tolist() for part, points in self.calibration.items()},
        }


Judge = Callable[[dict[int, int]], dict[int, float]]
"""Evaluates moves without a label: position number -> index of the move, to expected scores by number.
Moves that cannot be evaluated are omitted."""


def network_report(
    name: str,
    positions: DeepPositions,
    logits: NDArray[np.float32],
    wdl: NDArray[np.float32],
    start: NDArray[np.int64],
    judge: Judge | None = None,
    kinds: Mapping[str, NDArray[np.bool_]] | None = None,
) -> NetworkReport:
    """Return a network's report. kinds: masks [n] of further parts, by name.
    logits: [m] of all legal moves, those of position i from start[i] on. wdl: [n, 3]."""
    counts = np.diff(start)
    best = start[:-1] + positions.best
    chosen = np.array([logits[a:b].argmax() for a, b in pairwise(start)], np.int64)
    found = chosen == positions.best
    regret, unlisted = _regret(positions, chosen, judge)
    losses = np.stack([_log_losses(logits / t, start, counts, best) for t in TEMPERATURES])
    at_one = _log_losses(logits, start, counts, best)
    lowest = int(losses.mean(axis=1).argmin())
    predicted = expected(wdl)
    off = predicted - positions.value
    scaled = [np.square(expected(sharpened(wdl, k)) - positions.value).mean() for k in VALUE_SCALES]
    chosen_parts = {
        "all": np.ones(len(positions), bool),
        "games": ~positions.branch,
        "branches": positions.branch,
        **(kinds or {}),
    }
    parts, calibration = {}, {}
    for part, mine in chosen_parts.items():
        count = int(mine.sum())
        if not count:
            continue
        parts[part] = Figures(
            positions=count,
            top1=float(found[mine].mean()),
            top1_error=_standard_error(found[mine].astype(np.float64)),
            regret=float(regret[mine].mean()),
            regret_error=_standard_error(regret[mine]),
            unlisted=float(unlisted[mine].mean()),
            log_loss=float(at_one[mine].mean()),
            log_loss_best=float(losses[lowest][mine].mean()),
            value_rmse=float(np.sqrt(np.square(off[mine]).mean())),
            value_bias=float(off[mine].mean()),
        )
        calibration[part] = _calibration(predicted[mine], positions.value[mine])
    return NetworkReport(
        name,
        float(TEMPERATURES[lowest]),
        float(VALUE_SCALES[np.argmin(scaled)]),
        parts,
        losses.mean(axis=1),
        calibration,
    )


def _regret(
    positions: DeepPositions, chosen: NDArray[np.int64], judge: Judge | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the expected score [n] that each chosen move loses, and where it is a lower bound.

    Moves are compared within their own search: lines with lines.
    """
    there = positions.places != 255
    scores = np.where(there, positions.scores, -np.inf)
    reference = scores.max(axis=1)
    mine = positions.places == chosen[:, None]
    unlisted = ~mine.any(axis=1)
    worst = np.where(there, positions.scores, np.inf).min(axis=1)
    value = np.where(unlisted, worst, np.where(mine, scores, -np.inf).max(axis=1))
    if judge is not None and unlisted.any():
        asked = {int(number): int(chosen[number]) for number in np.flatnonzero(unlisted)}
        for number, score in judge(asked).items():
            value[number] = min(score, reference[number])
            unlisted[number] = False
    return (reference - value).astype(np.float64), unlisted


def _log_losses(
    logits: NDArray[np.float32], start: NDArray[np.int64], counts: NDArray[np.int64], best: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return -log of the probability of each position's best move, [n]."""
    largest = np.maximum.reduceat(logits, start[:-1])
    shifted = logits.astype(np.float64) - np.repeat(largest, counts)
    total = np.add.reduceat(np.exp(shifted), start[:-1])
    result: NDArray[np.float64] = np.log(total) - shifted[best]
    return result


def _calibration(predicted: NDArray[np.float32], labelled: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return one row for each non-empty bin, [bins, 3]."""
    numbers = np.minimum((predicted * BINS).astype(int), BINS - 1)
    points = []
    for number in range(BINS):
        mine = numbers == number
        if mine.any():
            points.append((predicted[mine].mean(), labelled[mine].mean(), mine.sum()))
    return np.array(points, np.float64).reshape(-1, 3)


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0

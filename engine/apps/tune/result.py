# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a tuning: values with errors, slopes, the command of a test match, and JSON data."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import floor, log, log10, nan, sqrt
from typing import Any

import numpy as np

from engine.apps.campaign.campaign import Throughput
from engine.apps.match.results.standings import Standings
from engine.apps.match.results.statistics import UNKNOWN, Z95, Estimate
from engine.apps.match.summary import estimate_data, finite, speed_data
from engine.apps.tune.config import PAIR_GAMES, TuneConfig
from engine.apps.tune.progress import Progress, Step
from engine.apps.tune.spsa import Parameter

BATCHES = 10
"""Parts of the averaged steps whose means give the standard error."""

LARGEST_CORRELATION = 0.95
"""Limit of the correlation of neighbouring batches, which few batches cannot tell from 1."""

ELO_PER_SCORE = 1600 / log(10)
"""Slope of Elo at a score of one half."""

TEST_GAMES = 4000
TEST_ELO = (0, 5)
"""Maximum games of the test match, and elo0 and elo1 of its SPRT."""


@dataclass(frozen=True, slots=True)
class TunedValue:
    """A parameter's result.

    last: the value after the last iteration. mean: the mean of the second half of the iterations. error: its
    standard error; nan before 2 BATCHES steps of that half. slope: Elo that one c_end more gains there.
    """

    parameter: Parameter
    last: float
    mean: float
    error: float
    slope: Estimate

    @property
    def rounded(self) -> float:
        """The mean, rounded to a hundredth of c_end, or to a whole number."""
        digits = 0 if self.parameter.integer else 2 - floor(log10(self.parameter.c_end))
        rounded = self.parameter.clipped(round(self.mean, digits))
        return int(rounded) if rounded == int(rounded) else rounded


def tuned_values(config: TuneConfig, steps: Sequence[Step]) -> list[TunedValue]:
    """Return the result of each parameter. steps: in the order in which the iterations ended."""
    if not steps:
        return [TunedValue(each, each.start, each.start, nan, UNKNOWN) for each in config.parameters]
    half = steps[len(steps) // 2 :]
    path = np.array([step.theta for step in half]).T
    return [
        TunedValue(parameter, last, float(values.mean()), standard_error(values), slope)
        for parameter, last, values, slope in zip(
            config.parameters, steps[-1].theta, path, _slopes(config, half), strict=True
        )
    ]


def standard_error(path: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return the standard error of the mean of a correlated sequence, by batch means; nan if it is short.

    Values of SPSA move slowly: the correlation often lasts as long as the sequence. The means of BATCHES
    consecutive parts are taken as an autoregressive sequence of first order with the correlation r of
    neighbours, corrected for the bias of short sequences (M. G. Kendall, Biometrika 41, 1954). Its mean has
    the share k(r) of a part's variance, so that the parts vary by the share 1 - k around it, and the error
    is s sqrt(k / (1 - k)). s: standard deviation of the parts.

    Measured in 40 simulated tunings each, with 8 games an iteration and 4 or 12 Elo per c_end²: two standard
    errors around the mean contain the optimum in 60 to 90 % with 2500 iterations (r_end 0.006, 0.02) or 7500
    (0.002). With 500 iterations (0.006), which do not always reach it, they do in 15 to 80 %.
    """
    if len(path) < 2 * BATCHES:
        return nan
    means = np.array([part.mean() for part in np.array_split(path, BATCHES)])
    spread = means - means.mean()
    variance = float(spread @ spread)
    if variance == 0:
        return 0.0
    seen = float(spread[1:] @ spread[:-1]) / variance
    correlation = min(LARGEST_CORRELATION, max(0.0, (BATCHES * seen + 1) / (BATCHES - 3)))
    lags = np.arange(1, BATCHES)
    share = (1 + 2 * float((1 - lags / BATCHES) @ correlation**lags)) / BATCHES
    return sqrt(variance / BATCHES * share / (1 - share))


def _slopes(config: TuneConfig, steps: Sequence[Step]) -> list[Estimate]:
    """Return Elo per c_end of each parameter, by least squares over iterations; of few without an error.

    The signs of parameters are independent, so each parameter has its own regression. The games of an
    iteration are half of those of theta+ and theta- together.
    """
    games = PAIR_GAMES * config.settings.pairs_per_iteration
    elo = np.array([ELO_PER_SCORE * step.score / (2 * games) for step in steps])
    distances = 2 * np.array([step.shift for step in steps])
    slopes = []
    for column in distances.T:
        square = float(column @ column)
        slope = float(column @ elo) / square
        residual = column * (elo - slope * column)
        enough = len(steps) >= BATCHES  # A few iterations fit almost without residuals.
        margin = Z95 * sqrt(float(residual @ residual)) / square if enough else nan
        slopes.append(Estimate(slope, slope - margin, slope + margin))
    return slopes


def match_command(config: TuneConfig, values: Sequence[TunedValue]) -> str:
    """Return the command of a match between the tuned values and those of [defaults], with an SPRT."""
    match, (elo0, elo1) = config.match, TEST_ELO
    tuned = {"name": "tuned"} | {value.parameter.name: value.rounded for value in values}
    words = ["wavefront", "match", "--player", _pairs(tuned), "--player", "name=default"]
    if config.defaults:
        words += ["--each", _pairs(config.defaults)]
    words += ["--games", str(TEST_GAMES), "--sprt", f"elo0={elo0},elo1={elo1}"]
    words += ["--seed", str(match.seed + 1)]  # Other openings than those of the tuning come first.
    if match.chess960:
        words.append("--chess960")
    for flag, value in (("--openings", match.openings.file), ("--plies", match.openings.plies)):
        words += [flag, str(value)] if value else []
    if match.openings.order != "random":
        words += ["--order", match.openings.order]
    rules = match.adjudication
    for flag, rule in (("--resign", rules.resign), ("--draw", rules.draw)):
        words += [flag, _pairs(asdict(rule))] if rule is not None else []
    if rules.max_moves is not None:
        words += ["--max-moves", str(rules.max_moves)]
    if rules.tablebase is not None:
        words += ["--syzygy", rules.tablebase.paths[0]]
    words += ["--output", f"{match.files.journal.with_suffix('')}-test"]
    return shlex.join(words)


def _pairs(values: Mapping[str, Any]) -> str:
    """Return key=value,key=value as `--player` reads it."""
    pairs = []
    for key, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        pairs.append(f'{key}="{text}"' if set(text) & set(", '") else f"{key}={text}")
    return ",".join(pairs)


def summary(progress: Progress, standings: Standings, throughput: Throughput) -> dict[str, Any]:
    """Return the state as JSON data. Non-finite numbers are None."""
    config = progress.config
    values = tuned_values(config, progress.steps)
    return {
        "event": config.match.event,
        "iterations": len(progress.steps),
        "iterations_scheduled": config.settings.iterations,
        "games": standings.games,
        "games_scheduled": len(standings.schedule),
        "finished": standings.finished,
        "parameters": [_value_data(value) for value in values],
        "test": match_command(config, values),
        "reasons": {str(reason): count for reason, count in standings.reasons.most_common()},
        "speed": speed_data(throughput),
    }


def _value_data(value: TunedValue) -> dict[str, Any]:
    parameter = value.parameter
    return {
        "name": parameter.name,
        "start": parameter.start,
        "min": parameter.low,
        "max": parameter.high,
        "c_end": parameter.c_end,
        "r_end": parameter.r_end,
        "value": value.rounded,
        "mean": value.mean,
        "standard_error": finite(value.error),
        "last": value.last,
        "elo_per_c_end": estimate_data(value.slope),
    }

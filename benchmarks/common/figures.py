# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of benchmarks: the measured value with its target and the peer's value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a benchmark. Values are in the unit that `what` names; peer may be empty."""

    what: str
    measured: float
    reach: float
    at_least: bool = True
    peer: str = ""

    @property
    def reached(self) -> bool:
        return self.measured >= self.reach if self.at_least else self.measured <= self.reach


def print_figures(figures: Sequence[Figure], *, as_json: bool = False) -> None:
    """Print the figures as a table, or as a JSON list of objects with the fields of Figure and `reached`."""
    if as_json:
        print(json.dumps([{**asdict(figure), "reached": figure.reached} for figure in figures]))
        return
    width = max(len(figure.what) for figure in figures)
    print(f"{'':{width}}  {'measured':>12}  {'to reach':>12}  {'':7}  peer")
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        verdict = "reached" if figure.reached else "missed"
        reach = f"{sign} {number(figure.reach)}"
        print(
            f"{figure.what:{width}}  {number(figure.measured):>12}  {reach:>12}  {verdict:7}  "
            f"{figure.peer or '-'}"
        )


def number(value: float) -> str:
    """Return a value for a table, with at least three significant digits."""
    if abs(value) >= 100 or not value:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return a duration as minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson's score method (1927); (0, 1) without trials."""
    if not trials:
        return 0.0, 1.0
    z = 1.959963984540054
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials**2))
    scale = 1 + z * z / trials
    return (centre - spread) / scale, (centre + spread) / scale

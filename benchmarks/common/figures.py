# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of benchmarks: the measured value with its target and the peer's value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


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

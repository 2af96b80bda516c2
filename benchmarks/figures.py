"""What the benchmarks print: a measured figure beside the one to reach and the peer's.

To be imported before the packages that are measured: those of this checkout are, whatever is installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))
RUN_ENGINE = [sys.executable, str(REPOSITORY / "run_engine.py")]


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


def print_figures(figures: Sequence[Figure]) -> None:
    """Print the figures as a table."""
    width = max(len(figure.what) for figure in figures)
    print(f"{'':{width}}  {'measured':>12}  {'to reach':>12}  {'':7}  peer")
    for figure in figures:
        sign = ">=" if figure.at_least else "<="
        verdict = "reached" if figure.reached else "missed"
        reach = f"{sign} {_number(figure.reach)}"
        print(
            f"{figure.what:{width}}  {_number(figure.measured):>12}  {reach:>12}  {verdict:7}  "
            f"{figure.peer or '-'}"
        )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def json_of(command: Sequence[str]) -> Any:
    """Run a command of the engine or the evaluator and read the JSON that it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nended with exit code {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)

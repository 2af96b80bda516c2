# SPDX-License-Identifier: GPL-3.0-or-later
"""Displays of a run: a live table in a terminal, lines in a log or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from engine.apps.campaign import shows_tables

WORTH_TELLING = 0.1
"""Share of dead units from which a layer is reported."""

ROWS = 20
"""Number of latest entries in the live table."""

COLUMNS = ("steps", "progress", "loss", "policy_kl", "value", "best_move", "q_error", "positions_per_second")


class RunView:
    """A context manager that occupies the terminal. to_stderr: standard output is reserved for JSON."""

    def __init__(self, *, to_stderr: bool = False) -> None:
        self._console = Console(stderr=to_stderr, markup=False, highlight=False)
        self._live: Live | None = None
        self._rows: list[dict[str, Any]] = []
        self._stream = sys.stderr if to_stderr else sys.stdout

    def __enter__(self) -> Self:
        if shows_tables(self._console):
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def note(self, text: str) -> None:
        """Print a message."""
        if self._live is not None:
            self._live.console.print(text, soft_wrap=True)
        else:
            print(text, file=self._stream, flush=True)

    def figures(self, entry: dict[str, Any]) -> None:
        """Show an entry of the metrics."""
        if self._live is None:
            print(figures_line(entry), file=self._stream, flush=True)
            return
        self._rows = [*self._rows, entry][-ROWS:]
        table = Table("", *COLUMNS)
        for row in self._rows:
            table.add_row(row["kind"], *(_cell(name, row.get(name)) for name in COLUMNS))
        self._live.update(table, refresh=True)


def figures_line(entry: dict[str, Any]) -> str:
    """Return an entry of the metrics as a line."""
    told = [f"{name} {_cell(name, entry[name])}" for name in COLUMNS[2:] if name in entry]
    return f"{entry['kind']} {entry['steps']:,} ({entry['progress']:.1%}): {', '.join(told)}"


def dead_told(shares: Mapping[str, float]) -> str:
    """Return the layers with a tenth or more dead units, in words; empty if there are none."""
    told = [f"{share:.0%} of {name}" for name, share in shares.items() if share >= WORTH_TELLING]
    return f"dead units of feed-forward layers: {', '.join(told)}" if told else ""


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name in ("progress", "best_move"):
        return f"{value:.1%}"
    return f"{value:,.0f}" if name in ("steps", "positions_per_second") else f"{value:.4f}"

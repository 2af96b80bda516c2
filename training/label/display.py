# SPDX-License-Identifier: GPL-3.0-or-later
"""Displays of labelling: a live table in a terminal, lines in a log or a pipe."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, TextIO

from engine.games.display import LiveDisplay, PlainDisplay
from training.label.game import LabelledGame
from training.label.runner import LabelState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REPORT_SECONDS = 10.0
"""Seconds between two lines in a log."""

NOTES_SHOWN = 4
"""Number of latest messages below the live table."""


def rows(state: LabelState) -> dict[str, str]:
    """Return the cells of the table, by heading."""
    totals, speed, settings = state.totals, state.throughput, state.settings
    pace = speed.moves_per_second
    wanted = settings.positions
    if settings.games:  # Positions are estimated from the games so far.
        wanted = round(settings.games * totals.positions / max(1, totals.games))
    left = wanted - totals.positions
    remaining = f", {max(1.0, left / pace / 60):,.0f} min left" if pace > 0 and left > 0 else ""
    share = min(1.0, totals.positions / max(1, wanted))
    told = {
        "positions": f"{totals.positions:,} of {'about ' if settings.games else ''}{wanted:,} ({share:.1%}), "
        f"{totals.branches:,} of them beside games",
        "games": f"{totals.games:,}, White +{totals.results['white_won']:,} ={totals.results['draw']:,} "
        f"-{totals.results['black_won']:,}, {totals.plies / max(1, totals.games):.0f} plies each",
        "speed": f"{pace:,.0f} positions/s by {speed.concurrency} engines{remaining}",
    }
    if totals.dropped:
        told["failures"] = f"{totals.dropped:,} games dropped"
    return told


def summary_line(state: LabelState) -> str:
    """Return the state in one line."""
    return "; ".join(rows(state).values())


def dropped_line(game: LabelledGame) -> str:
    return f"game {game.number} is dropped: {game.dropped}"


class PlainView(PlainDisplay):
    """Prints a line every few seconds, and one for each dropped game."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._next_report = monotonic() + REPORT_SECONDS

    def started(self, state: LabelState) -> None:
        if state.resumed:
            self.note(f"{state.resumed:,} games are there already: {state.folder}")

    def game_over(self, state: LabelState, entry: LabelledGame) -> None:
        if entry.dropped:
            self.note(dropped_line(entry))

    def tick(self, state: LabelState) -> None:
        if monotonic() >= self._next_report:
            self._next_report = monotonic() + REPORT_SECONDS
            self.note(summary_line(state))


class LiveView(LiveDisplay[LabelState]):
    """A table in a terminal, and the latest messages below it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._notes: list[str] = []

    def game_over(self, state: LabelState, entry: LabelledGame) -> None:
        if entry.dropped:
            self.note(dropped_line(entry))

    def note(self, text: str) -> None:
        self._notes = [*self._notes, text][-NOTES_SHOWN:]

    def drawing(self, state: LabelState) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(f"labelling to {state.folder}", "table.title"), show_header=False)
        for heading, cell in rows(state).items():
            table.add_row(heading, cell)
        return Group(table, Text("\n".join(self._notes)))

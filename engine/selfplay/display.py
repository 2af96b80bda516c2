# SPDX-License-Identifier: GPL-3.0-or-later
"""Display of self-play: a live table in a terminal, plain lines in a log or pipe."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, TextIO

from engine.games.display import LiveDisplay, PlainDisplay
from engine.selfplay.archive import GameEntry
from engine.selfplay.runner import SelfPlayState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REPORT_SECONDS = 10.0
"""Time between two lines about the speed in a log."""

NOTES_SHOWN = 4
"""Latest messages below the live table."""


def pace_line(state: SelfPlayState) -> str:
    """Return the speed of self-play as a line."""
    speed = state.throughput
    return (
        f"{speed.concurrency} games at once, {speed.games_per_hour:,.0f} games/h, "
        f"{speed.pool.positions_per_second:,.0f} positions/s evaluated, "
        f"mean batch {speed.pool.mean_batch:,.1f}, {state.positions:,} positions written"
    )


def totals_line(state: SelfPlayState) -> str:
    """Return the totals as a line."""
    totals = state.totals
    wanted = f" of {state.config.games}" if state.config.games >= max(1, totals.games) else ""
    line = (
        f"{totals.games}{wanted} games, White +{totals.results['1-0']} ={totals.results['1/2-1/2']} "
        f"-{totals.results['0-1']}, {totals.plies / max(1, totals.games):.0f} plies each"
    )
    if totals.resign_checked:
        line += f", resigning wrong in {totals.resign_wrong} of {totals.resign_checked} games"
    return line


def game_line(entry: GameEntry) -> str:
    """Return a finished game as a line."""
    return f"game {entry.number}: {entry.result}, {entry.reason}, {entry.plies} plies, {entry.seconds:.1f} s"


class PlainView(PlainDisplay):
    """Lines: one per game, and the speed every few seconds."""

    def __init__(self, stream: TextIO, *, games: bool = True) -> None:
        """games: print a line for each game."""
        super().__init__(stream)
        self._games = games
        self._next_report = monotonic() + REPORT_SECONDS

    def started(self, state: SelfPlayState) -> None:
        if state.resumed:
            self.note(f"{state.resumed} games are played already: {state.config.output}")

    def game_over(self, state: SelfPlayState, entry: GameEntry) -> None:
        if self._games:
            self.note(game_line(entry))

    def tick(self, state: SelfPlayState) -> None:
        if monotonic() >= self._next_report:
            self._next_report = monotonic() + REPORT_SECONDS
            self.note(f"  {totals_line(state)}; {pace_line(state)}")


class LiveView(LiveDisplay[SelfPlayState]):
    """A table in a terminal, with the latest messages below it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._notes: list[str] = []

    def game_over(self, state: SelfPlayState, entry: GameEntry) -> None:
        self.note(game_line(entry))

    def note(self, text: str) -> None:
        self._notes = [*self._notes, text][-NOTES_SHOWN:]

    def drawing(self, state: SelfPlayState) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        return Group(totals_table(state), Text("\n".join(self._notes)))


def totals_table(state: SelfPlayState) -> RenderableType:
    """Return the totals as a rich table with a line for each, which fits any terminal."""
    from rich.table import Table
    from rich.text import Text

    totals, speed = state.totals, state.throughput
    wanted = f" of {state.config.games:,}" if state.config.games else ""
    rows = {
        "games": f"{totals.games:,}{wanted}, {state.playing:,} running",
        "results": f"White +{totals.results['1-0']} ={totals.results['1/2-1/2']} -{totals.results['0-1']}, "
        f"{totals.plies / max(1, totals.games):.0f} plies each",
        "written": f"{totals.positions:,} positions",
        "speed": f"{speed.games_per_hour:,.0f} games/h, {speed.pool.positions_per_second:,.0f} positions/s",
        "batches": f"mean {speed.pool.mean_batch:,.1f}, of {speed.concurrency:,} games at once",
    }
    if totals.resign_checked:
        rows["resigning"] = f"wrong in {totals.resign_wrong} of {totals.resign_checked} games played on"
    table = Table(title=Text(f"self-play in {state.config.output}", "table.title"), show_header=False)
    for heading, cell in rows.items():
        table.add_row(heading, cell)
    return table

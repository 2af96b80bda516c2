"""Shows self-play: a table that is drawn anew in a terminal, plain lines in a log or a pipe."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, TextIO

from engine.selfplay.archive import GameEntry
from engine.selfplay.runner import SelfPlayRunner

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

REPORT_SECONDS = 10.0
"""Time between two lines about the pace in a log."""

NOTES_SHOWN = 4
"""Latest messages below the live table."""


def pace_line(runner: SelfPlayRunner) -> str:
    """How fast it goes."""
    pace = runner.pace
    return (
        f"{pace.concurrency} games at once, {pace.games_per_hour:,.0f} games/h, "
        f"{pace.evaluations_per_second:,.0f} positions/s evaluated, mean batch {pace.mean_batch:,.1f}, "
        f"{pace.positions:,} positions written"
    )


def totals_line(runner: SelfPlayRunner) -> str:
    """What was played."""
    totals = runner.totals
    wanted = f" of {runner.config.games}" if totals.games <= runner.config.games else ""
    line = (
        f"{totals.games}{wanted} games, White +{totals.results['1-0']} ={totals.results['1/2-1/2']} "
        f"-{totals.results['0-1']}, {totals.plies / max(1, totals.games):.0f} plies each"
    )
    if totals.resign_checked:
        line += f", resigning wrong in {totals.resign_wrong} of {totals.resign_checked} games"
    return line


def game_line(entry: GameEntry) -> str:
    """One finished game."""
    return f"game {entry.number}: {entry.result}, {entry.reason}, {entry.plies} plies, {entry.seconds:.1f} s"


class PlainView:
    """Lines: one per game, the pace every few seconds."""

    def __init__(self, stream: TextIO, *, games: bool = True) -> None:
        """games: with a line for each game."""
        self._stream = stream
        self._games = games
        self._next_report = monotonic() + REPORT_SECONDS

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def started(self, runner: SelfPlayRunner) -> None:
        if runner.resumed:
            self.note(f"{runner.resumed} games are played already: {runner.config.output}")

    def game_over(self, runner: SelfPlayRunner, entry: GameEntry) -> None:
        if self._games:
            self.note(game_line(entry))

    def tick(self, runner: SelfPlayRunner) -> None:
        if monotonic() >= self._next_report:
            self._next_report = monotonic() + REPORT_SECONDS
            self.note(f"  {totals_line(runner)}; {pace_line(runner)}")

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveView:
    """A table in a terminal, drawn once a second."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._notes: list[str] = []
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.__exit__(None, None, None)

    def started(self, runner: SelfPlayRunner) -> None:
        self.tick(runner)

    def game_over(self, runner: SelfPlayRunner, entry: GameEntry) -> None:
        self._notes = [*self._notes, game_line(entry)][-NOTES_SHOWN:]

    def tick(self, runner: SelfPlayRunner) -> None:
        self._live.update(self._drawing(runner), refresh=True)

    def note(self, text: str) -> None:
        self._notes = [*self._notes, text][-NOTES_SHOWN:]

    def _drawing(self, runner: SelfPlayRunner) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        return Group(totals_table(runner), Text("\n".join(self._notes)))


def totals_table(runner: SelfPlayRunner) -> RenderableType:
    """The totals as a table of rich: a line for each, which fits any terminal."""
    from rich.table import Table

    totals, pace = runner.totals, runner.pace
    wanted = f" of {runner.config.games:,}" if runner.config.games else ""
    rows = {
        "games": f"{totals.games:,}{wanted}, {runner.playing:,} under way",
        "results": f"White +{totals.results['1-0']} ={totals.results['1/2-1/2']} -{totals.results['0-1']}, "
        f"{totals.plies / max(1, totals.games):.0f} plies each",
        "written": f"{totals.positions:,} positions",
        "speed": f"{pace.games_per_hour:,.0f} games/h, {pace.evaluations_per_second:,.0f} positions/s",
        "batches": f"mean {pace.mean_batch:,.1f}, of {pace.concurrency:,} games at once",
    }
    if totals.resign_checked:
        rows["resigning"] = f"wrong in {totals.resign_wrong} of {totals.resign_checked} games played on"
    table = Table(title=f"self-play in {runner.config.output}", show_header=False)
    for heading, cell in rows.items():
        table.add_row(heading, cell)
    return table

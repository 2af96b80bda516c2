# SPDX-License-Identifier: GPL-3.0-or-later
"""Displays of campaigns: lines in a log or pipe, or a table in a terminal, updated once per second."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Self, TextIO, TypeVar

from protocol.common.closing import Closing

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

State = TypeVar("State")
Entry = TypeVar("Entry")

REPORT_SECONDS = 10.0
"""Time between two reports in a log, for kinds that do not report after games."""


def _no_lines(state: Any) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Display(Generic[State, Entry]):
    """What displays show of a kind of campaign, as functions of its state.

    heading: first lines of a log. game: a finished game as a line, or "". report: lines of a report in a log.
    reports: number of reports that a log has by now (None: one every REPORT_SECONDS). table: of a terminal
    with this width. below: lines below the table. messages: number of latest games and notes below them; 0
    shows the last game, and prints notes above the table.
    """

    heading: Callable[[State], list[str]]
    game: Callable[[State, Entry], str]
    report: Callable[[State], list[str]]
    reports: Callable[[State], int] | None = None
    table: Callable[[State, int], RenderableType]
    below: Callable[[State], list[str]] = _no_lines
    messages: int = 0


def shows_tables(console: Console) -> bool:
    """Return True if the console is a terminal that can redraw its contents."""
    return console.is_terminal and not console.is_dumb_terminal


def view_of(display: Display[State, Entry], *, as_json: bool) -> QuietView:
    """Return the view for standard output, or for standard error if the other is for JSON."""
    from rich.console import Console

    console = Console(stderr=as_json)
    if shows_tables(console):
        return LiveView(display, console)
    return PlainView(display, sys.stderr if as_json else sys.stdout)


def row_table(title: str, rows: Mapping[str, str]) -> RenderableType:
    """Return a rich table with a line for each heading, which fits any terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, "table.title"), show_header=False)
    for heading, cell in rows.items():
        table.add_row(heading, cell)
    return table


class QuietView(Closing):
    """Show only the notes of a run: the base of all displays of a campaign. A context manager.

    The event loop calls it, so its methods must be quick. note: shows a message to the user; any thread may
    call it.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note

    def started(self, state: Any) -> None:
        """Show that the executor is ready and games start."""

    def game_over(self, state: Any, entry: Any) -> None:
        """Show a game that was recorded and counted."""

    def tick(self, state: Any) -> None:
        """Update the display; called once per second."""


class PlainView(QuietView, Generic[State, Entry]):
    """Write lines to a stream: games, and a report now and then."""

    def __init__(self, display: Display[State, Entry], stream: TextIO) -> None:
        super().__init__(partial(print, file=stream, flush=True))
        self._display = display
        self._reports = 0
        self._next_report = perf_counter() + REPORT_SECONDS

    def started(self, state: State) -> None:
        for line in self._display.heading(state):
            self.note(line)
        if self._display.reports is not None:
            self._reports = self._display.reports(state)

    def game_over(self, state: State, entry: Entry) -> None:
        line = self._display.game(state, entry)
        if line:
            self.note(line)
        if self._display.reports is not None and self._display.reports(state) > self._reports:
            self._reports = self._display.reports(state)
            self._report(state)

    def tick(self, state: State) -> None:
        if self._display.reports is None and perf_counter() >= self._next_report:
            self._next_report = perf_counter() + REPORT_SECONDS
            self._report(state)

    def _report(self, state: State) -> None:
        for line in self._display.report(state):
            self.note(line)


class LiveView(QuietView, Generic[State, Entry]):
    """Draw the state in a terminal, which it occupies while the context is open."""

    def __init__(self, display: Display[State, Entry], console: Console) -> None:
        from rich.live import Live

        super().__init__(self._note)
        self._display = display
        self._console = console
        self._latest: deque[str] = deque(maxlen=display.messages or 1)
        # Draw once per second at most: drawing takes more CPU time than playing.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.__exit__(None, None, None)

    def started(self, state: State) -> None:
        self.tick(state)

    def game_over(self, state: State, entry: Entry) -> None:
        line = self._display.game(state, entry)
        if line:
            self._latest.append(line)

    def tick(self, state: State) -> None:
        from rich.console import Group
        from rich.text import Text

        table = self._display.table(state, self._console.width)
        lines = [*self._display.below(state), *self._latest]
        self._live.update(Group(table, Text("\n".join(lines))), refresh=True)

    def _note(self, text: str) -> None:
        if self._display.messages:
            self._latest.append(text)
        else:
            self._console.print(text, markup=False, highlight=False)  # above the table, permanently

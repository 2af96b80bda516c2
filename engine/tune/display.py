# SPDX-License-Identifier: GPL-3.0-or-later
"""Display of a tuning: a live table in a terminal, plain lines in a log or pipe."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, TextIO

from engine.games.display import LiveDisplay, PlainDisplay
from engine.games.record import GameRecord
from engine.match.display import speed_line
from engine.tune.config import TuneConfig
from engine.tune.progress import TuneState
from engine.tune.result import TunedValue, tuned_values

if TYPE_CHECKING:
    from rich.console import RenderableType

REPORTS = 100
"""Maximum reports of the values in a log."""


def progress_line(state: TuneState) -> str:
    """Return the numbers of iterations and games."""
    settings = state.progress.config.settings
    return (
        f"iteration {len(state.progress.steps)} of {settings.iterations}, "
        f"{state.standings.games} of {len(state.standings.schedule)} games"
    )


def value_lines(state: TuneState) -> list[str]:
    """Return each parameter's result as a line."""
    return [
        f"{value.parameter.name}: {_number(value.mean)}{_error(value)}, last {_number(value.last)}, "
        f"start {_number(value.parameter.start)}, Elo per c_end {value.slope}"
        for value in tuned_values(state.progress.config, state.progress.steps)
    ]


def values_table(state: TuneState) -> RenderableType:
    """Return the results as a rich table."""
    from rich.table import Table
    from rich.text import Text

    config = state.progress.config
    table = Table(title=Text(config.match.event, "table.title"))
    for heading in ("parameter", "start", "last", "mean", "± s.e.", "c_end", "Elo per c_end"):
        table.add_column(heading, justify="left" if heading == "parameter" else "right", no_wrap=True)
    for value in tuned_values(config, state.progress.steps):
        parameter = value.parameter
        numbers = [_number(each) for each in (parameter.start, value.last, value.mean)]
        error = f"{value.error:.2g}" if isfinite(value.error) else "–"
        table.add_row(parameter.name, *numbers, error, _number(parameter.c_end), str(value.slope))
    return table


class PlainView(PlainDisplay):
    """Lines: the values every few iterations."""

    def __init__(self, config: TuneConfig, stream: TextIO) -> None:
        super().__init__(stream)
        self._config = config
        self._reported = 0

    def started(self, state: TuneState) -> None:
        match = self._config.match
        names = ", ".join(f"{player.name} ({player.time})" for player in match.players)
        self.note(f"{match.event}: {names}; {len(match.schedule)} games")
        if state.resumed:
            self.note(f"{state.resumed} games are played already: {match.files.journal}")
        self._reported = len(state.progress.steps)

    def game_over(self, state: TuneState, record: GameRecord) -> None:
        done, every = len(state.progress.steps), max(1, self._config.settings.iterations // REPORTS)
        if done >= self._reported + every:
            self._reported = done
            self.note(f"{progress_line(state)}; {speed_line(state)}")
            for line in value_lines(state):
                self.note("  " + line)

    def tick(self, state: TuneState) -> None:
        pass


class LiveView(LiveDisplay[TuneState]):
    """A live table in a terminal during the tuning."""

    def game_over(self, state: TuneState, record: GameRecord) -> None:
        pass

    def note(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)  # above the table, permanently

    def drawing(self, state: TuneState) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        lines = [f"{progress_line(state)}, {state.playing} running"]
        if state.resumed:
            lines[0] += f", {state.resumed} resumed"
        lines.append(speed_line(state))
        return Group(values_table(state), Text("\n".join(lines)))


def _number(value: float) -> str:
    return f"{value:.5g}"


def _error(value: TunedValue) -> str:
    return f" ± {value.error:.2g}" if isfinite(value.error) else ""

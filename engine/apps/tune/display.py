# SPDX-License-Identifier: GPL-3.0-or-later
"""What displays show of a tuning: its progress, and the values of its parameters."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from engine.apps.campaign.display import Display
from engine.apps.games.record import GameRecord
from engine.apps.match.display import heading, progress_lines, speed_line
from engine.apps.tune.campaign import TuneCampaign
from engine.apps.tune.result import TunedValue, tuned_values

if TYPE_CHECKING:
    from rich.console import RenderableType

REPORTS = 100
"""Maximum reports of the values in a log."""


def progress_line(state: TuneCampaign) -> str:
    """Return the numbers of iterations and games."""
    settings = state.progress.config.settings
    return (
        f"iteration {len(state.progress.steps)} of {settings.iterations}, "
        f"{state.standings.games} of {len(state.standings.schedule)} games"
    )


def value_lines(state: TuneCampaign) -> list[str]:
    """Return each parameter's result as a line."""
    return [
        f"{value.parameter.name}: {_number(value.mean)}{_error(value)}, last {_number(value.last)}, "
        f"start {_number(value.parameter.start)}, Elo per c_end {value.slope}"
        for value in tuned_values(state.progress.config, state.progress.steps)
    ]


def values_table(state: TuneCampaign) -> RenderableType:
    """Return the results as a rich table."""
    from rich.table import Table
    from rich.text import Text

    config = state.progress.config
    table = Table(title=Text(config.match.event, "table.title"))
    for column in ("parameter", "start", "last", "mean", "± s.e.", "c_end", "Elo per c_end"):
        table.add_column(column, justify="left" if column == "parameter" else "right", no_wrap=True)
    for value in tuned_values(config, state.progress.steps):
        parameter = value.parameter
        numbers = [_number(each) for each in (parameter.start, value.last, value.mean)]
        error = f"{value.error:.2g}" if isfinite(value.error) else "–"
        table.add_row(parameter.name, *numbers, error, _number(parameter.c_end), str(value.slope))
    return table


def _number(value: float) -> str:
    return f"{value:.5g}"


def _error(value: TunedValue) -> str:
    return f" ± {value.error:.2g}" if isfinite(value.error) else ""


def _report(state: TuneCampaign) -> list[str]:
    values = ["  " + line for line in value_lines(state)]
    return [f"{progress_line(state)}; {speed_line(state)}", *values]


DISPLAY: Display[TuneCampaign, GameRecord] = Display(
    heading=heading,
    game=lambda state, record: "",
    report=_report,
    reports=lambda state: (
        len(state.progress.steps) // max(1, state.progress.config.settings.iterations // REPORTS)
    ),
    table=lambda state, width: values_table(state),
    below=lambda state: progress_lines(state, progress_line(state)),
)

# SPDX-License-Identifier: GPL-3.0-or-later
"""A plot of Elo over the games of a match."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path

from engine.apps.games.record import GameOutcome
from engine.apps.match.config import MatchConfig
from engine.apps.match.results.standings import Standings
from engine.apps.match.results.statistics import Estimate, elo
from protocol.common.outputs import PlotError, figure_of, save_figure
from protocol.common.printing import failing_as

POINTS = 400
"""Maximum points of a curve: more are not visible."""

LARGEST = 1000.0
"""Larger Elo values, such as after wins only, are drawn here."""


def elo_history(config: MatchConfig, outcomes: Sequence[GameOutcome]) -> list[tuple[int, list[Estimate]]]:
    """Return each player's Elo by number of games, at up to `POINTS` points. outcomes: in counted order."""
    standings = Standings(config.schedule, config.sprt)
    step = max(1, len(outcomes) // POINTS)
    history = []
    for outcome in outcomes:
        standings.add(outcome)
        if standings.games % step == 0 or standings.games == len(outcomes):
            estimates = [elo(standings.total(player)) for player in range(len(config.players))]
            history.append((standings.games, estimates))
    return history


def check_plot(path: Path) -> None:
    """Check before the first game that the plot can be created, and create its folder. Raises PlotError."""
    formats = figure_of(1, 1).canvas.get_supported_filetypes()
    if path.suffix.lower().removeprefix(".") not in formats:
        raise PlotError(f"{path} is no image file: its name ends with .png, .svg, .pdf or the like")
    with failing_as(PlotError, f"cannot make the folder {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)


def plot_elo(path: Path, config: MatchConfig, outcomes: Sequence[GameOutcome]) -> None:
    """Draw Elo with its 95 % interval over the games to an image file. The suffix selects the format.

    Of two players only the first is drawn. Call `check_plot` before. Raises PlotError.
    """
    from matplotlib.ticker import MaxNLocator

    if not outcomes:
        raise PlotError("there is nothing to plot before the first game")
    history = elo_history(config, outcomes)
    games = [count for count, _ in history]
    figure = figure_of(9, 5)
    axes = figure.subplots()
    shown = [0] if len(config.players) == 2 else range(len(config.players))
    for player in shown:
        estimates = [estimates[player] for _, estimates in history]
        values = [_drawn(estimate.value) for estimate in estimates]
        (line,) = axes.plot(games, values, label=config.players[player].name)
        axes.fill_between(
            games,
            [_drawn(estimate.low) for estimate in estimates],
            [_drawn(estimate.high) for estimate in estimates],
            color=line.get_color(),
            alpha=0.15,
            linewidth=0,
        )
    axes.axhline(0, color="grey", linewidth=0.8)
    # Ignore the first games, whose bars of hundreds of Elo would flatten the rest.
    settled = [
        _drawn(bound)
        for count, estimates in history
        if count >= games[-1] / 10
        for player in shown
        for bound in (estimates[player].low, estimates[player].high)
        if not isnan(bound)
    ]
    if settled:
        margin = 0.1 * (max(settled) - min(settled)) or 1.0
        axes.set_ylim(min(*settled, 0) - margin, max(*settled, 0) + margin)
    axes.set_xlabel("games")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(config.players) == 2:
        first, second = (player.name for player in config.players)
        axes.set_ylabel("Elo")
        axes.set_title(f"{config.event}\n{first} against {second}")
    else:
        axes.set_ylabel("Elo against the field")
        axes.set_title(config.event)
        axes.legend()
    save_figure(figure, path, dpi=120)


def _drawn(value: float) -> float:
    return max(-LARGEST, min(LARGEST, value))

"""What self-play shows in a terminal and in a log."""

from __future__ import annotations

import io

from rich.console import Console

from engine.games.record import Reason
from engine.selfplay.archive import GameEntry
from engine.selfplay.config import SelfPlayConfig
from engine.selfplay.display import LiveView, PlainView, totals_line
from engine.selfplay.runner import SelfPlayRunner
from engine.selfplay.statistics import Pace


def runner_after(games: int, wanted: int = 40) -> SelfPlayRunner:
    """Self-play in which White has won so many games."""
    runner = SelfPlayRunner(SelfPlayConfig(games=wanted, output="run"), PlainView(io.StringIO()))
    for number in range(games):
        runner.totals.add(entry(number))
    runner.pace = Pace(100.0, 256, games, 60 * games, 12_345_678, 123_456.7, 219.5)
    return runner


def entry(number: int) -> GameEntry:
    """A won game."""
    return GameEntry(number, "1-0", Reason.CHECKMATE, 60, 52, 1.5, False, None)


def test_a_narrow_terminal_gets_every_number_whole() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    runner = runner_after(12)
    with LiveView(console) as view:
        view.started(runner)
        view.note("the evaluator is started again")
        view.game_over(runner, entry(11))
        view.tick(runner)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    for part in ("12 of 40", "+12 =0 -0", "123,457 positions/s", "219.5", "game 11: 1-0", "started again"):
        assert part in text


def test_games_beyond_those_wanted_are_not_a_share_of_them() -> None:
    assert totals_line(runner_after(12)).startswith("12 of 40 games")
    assert totals_line(runner_after(12, wanted=4)).startswith("12 games")

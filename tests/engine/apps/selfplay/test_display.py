# SPDX-License-Identifier: GPL-3.0-or-later
"""What self-play shows in a terminal and in a log."""

import io

from rich.console import Console

from engine.apps.campaign.campaign import Throughput
from engine.apps.campaign.display import LiveView
from engine.apps.games.record import Reason
from engine.apps.selfplay.archive import GameEntry
from engine.apps.selfplay.campaign import SelfPlayCampaign
from engine.apps.selfplay.config import SelfPlayConfig
from engine.apps.selfplay.display import DISPLAY, rows
from engine.search.pool import PoolStatistics


def state_after(games: int, wanted: int = 40) -> SelfPlayCampaign:
    """Self-play in which White has won so many games."""
    state = SelfPlayCampaign(SelfPlayConfig(games=wanted, output="run"))
    for number in range(games):
        state.totals.add(entry(number))
    asked = PoolStatistics(evaluations=12_345_670, seconds=100.0, mean_batch=219.5)
    state.throughput = Throughput(seconds=100.0, concurrency=256, games=games, pool=asked)
    return state


def entry(number: int) -> GameEntry:
    """A won game."""
    return GameEntry(number, "1-0", Reason.CHECKMATE, 60, 52, 1.5, False, None)


def test_a_narrow_terminal_gets_every_number_whole() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    state = state_after(12)
    with LiveView(DISPLAY, console) as view:
        view.started(state)
        view.note("the evaluator is started again")
        view.game_over(state, entry(11))
        view.tick(state)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    for part in ("12 of 40", "+12 =0 -0", "123,457 positions/s", "219.5", "game 11: 1-0", "started again"):
        assert part in text


def test_games_without_end_are_no_share_of_none() -> None:
    assert rows(state_after(0, wanted=0))["games"].startswith("0 games")


def test_games_beyond_those_wanted_are_not_a_share_of_them() -> None:
    assert rows(state_after(12))["games"].startswith("12 of 40 games")
    assert rows(state_after(12, wanted=4))["games"].startswith("12 games")

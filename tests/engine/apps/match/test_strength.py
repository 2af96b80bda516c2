# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a match finds the stronger side: the shipped network at 100 and at 400 nodes. About an hour on
two cores."""

from pathlib import Path

import pytest

from engine.apps.match.adjudication import Adjudication, DrawRule, ResignRule
from engine.apps.match.config import PlayerConfig
from engine.apps.match.results.statistics import elo
from engine.apps.match.timecontrol import TimeControl
from tests.engine.apps.match.matches import match, play, replay


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_four_times_the_nodes_win_200_games(tmp_path: Path) -> None:
    players = [PlayerConfig(f"{nodes} nodes", TimeControl(nodes=nodes)) for nodes in (400, 100)]
    adjudication = Adjudication(
        resign=ResignRule(score=500, moves=3), draw=DrawRule(from_move=30, moves=4, score=20), max_moves=150
    )
    config = match(tmp_path, players, games=200, adjudication=adjudication)
    _, campaign, _ = play(config)
    estimate = elo(campaign.standings.tally(0, 1))
    assert estimate.low > 0
    assert 20 < estimate.error < 80
    assert len(replay(config.files.pgn)) == 200

# SPDX-License-Identifier: GPL-3.0-or-later
"""Real games of a tuning: the players search with the values of their game."""

from pathlib import Path
from statistics import mean

import pytest

from engine.apps.games.openings import Opening
from engine.apps.games.record import GameRecord
from engine.apps.match.job import MatchJob
from engine.apps.tune.campaign import TunedGame, use_values
from engine.workers.executor import WorkerContext
from tests.engine.apps.tune.tunings import tuning

CONFIG = """
[defaults]
backend = "random"
hash = 1
tree_memory = 16
nodes = 200
[adjudication]
max_moves = 4
[parameters.cpuct]
min = 0
max = 100
c_end = 1
"""


@pytest.mark.integration
async def test_each_game_is_searched_with_its_own_values(tmp_path: Path) -> None:
    config = tuning(tmp_path, "iterations = 1\npairs_per_iteration = 2", CONFIG)
    job = MatchJob(config.match, (Opening("initial"),) * 2, use_values)

    async def depths(values: dict[int, dict[str, float]]) -> list[float]:
        """Mean selective depth of theta+ and of theta-, after another game with the opposite values."""
        opposite = {0: values[1], 1: values[0]}
        await executor.play([TunedGame(0, opposite)])
        (record,) = await executor.play([TunedGame(0, values)])
        assert isinstance(record, GameRecord)
        return [mean(move.selective_depth or 0 for move in record.moves[side::2]) for side in (0, 1)]

    executor = job.executor(lambda text: None, WorkerContext())
    await executor.open()
    try:
        deep, flat = {"cpuct": 0.01}, {"cpuct": 100.0}
        first, second = await depths({0: deep, 1: flat}), await depths({0: flat, 1: deep})
    finally:
        await executor.close()
    assert first[0] > 2 * first[1]
    assert second[1] > 2 * second[0]

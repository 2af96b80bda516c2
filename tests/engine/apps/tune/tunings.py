# SPDX-License-Identifier: GPL-3.0-or-later
"""Helpers to run tunings in tests: the real tuner with simulated games of known strength."""

import asyncio
import tomllib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from engine.apps.campaign.campaign import RunEnding
from engine.apps.games.record import GameRecord, Reason, Result
from engine.apps.match.config import MatchConfig
from engine.apps.match.results.statistics import score_of_elo
from engine.apps.tune.campaign import TuneCampaign, TunedGame
from engine.apps.tune.config import TuneConfig, tune_config
from engine.search.pool import PoolStatistics
from engine.workers.executor import ExecutorError
from tests.engine.apps.games.recorder import Recorder

OPTIMUM = {"cpuct": 2.5, "fpu_value": 0.2, "transposition_visits": 30}
"""Values of greatest strength in simulated games. Any other option does not matter."""

CURVATURE = {"cpuct": 400.0, "fpu_value": 8000.0, "transposition_visits": 1.0}
"""Elo lost by a difference of 1 from the optimum; by x, x² times that."""

SPSA_TOML = """
[parameters.cpuct]
min = 1.0
max = 4.0
c_end = 0.15
r_end = 0.02
[parameters.fpu_value]
min = -0.3
max = 0.7
c_end = 0.05
r_end = 0.02
"""


def tuning(folder: Path, text: str = "", parameters: str = SPSA_TOML) -> TuneConfig:
    """A tuning with files in a folder. text: top-level keys, before the parameters."""
    document = tomllib.loads(f"{text}\n{parameters}")
    return tune_config({"output": str(folder / "tune")} | document, "tune.toml")


class SimulatedExecutor:
    """Plays games whose result depends on the distance of both players' values from OPTIMUM."""

    games_per_task = 1

    def __init__(self, match: MatchConfig, most: int | None) -> None:
        self.values: list[dict[int, dict[str, float]]] = []
        self._match = match
        self._left = most

    async def open(self) -> int:
        return 8

    async def play(self, numbers: Sequence[int]) -> list[GameRecord]:
        await asyncio.sleep(0)
        if self._left is not None:
            self._left -= len(numbers)
            if self._left < 0:
                raise ExecutorError("the machine went down")
        return [self._record(number) for number in numbers]

    def statistics(self) -> PoolStatistics:
        return PoolStatistics()

    async def close(self) -> None:
        pass

    def _record(self, number: int) -> GameRecord:
        assert isinstance(number, TunedGame)
        self.values.append({player: dict(values) for player, values in number.changes.items()})
        game = self._match.schedule[number]
        elo = [self._elo(number.changes.get(player, {})) for player in (game.white, game.black)]
        score, draws = score_of_elo(elo[0] - elo[1]), 0.4
        chance = Random(f"game {int(number)}").random()
        result: Result = "1/2-1/2"
        if chance < score * (1 - draws):
            result = "1-0"
        elif chance > 1 - (1 - score) * (1 - draws):
            result = "0-1"
        return GameRecord(
            *(int(number), game.pair, game.white, game.black, result, Reason.CHECKMATE, "none"), seconds=1.0
        )

    def _elo(self, values: dict[str, float] | Any) -> float:
        return -sum(
            CURVATURE.get(name, 0) * (value - OPTIMUM.get(name, 0)) ** 2 for name, value in values.items()
        )


def tune(config: TuneConfig, *, most: int | None = None) -> tuple[RunEnding, TuneCampaign, SimulatedExecutor]:
    """Run a tuning with simulated games. most: games until the executor fails."""
    executor = SimulatedExecutor(config.match, most)

    async def make_executor(job: Any, log: Any) -> SimulatedExecutor:
        return executor

    view: Any = Recorder()
    campaign = TuneCampaign(config)
    return asyncio.run(campaign.run(view, make_executor=make_executor)), campaign, executor

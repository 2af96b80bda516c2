# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays and labels games in this process, with one engine per running game.

A search pool evaluates the network whose policy branches are sampled from."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine._core import Game, Tree
from engine.apps.games import Opening
from engine.evaluation.errors import NoEvaluatorError
from engine.options import Options
from engine.search.limits import Limits
from engine.search.pool import PoolPlayer, PoolStatistics, SearchPool
from engine.workers.executor import LocalExecutor, Log, WorkerContext
from evaluator.network import network_file
from protocol.common.processors import usable_processors
from training.label.engine import Labeller, NoEngineError
from training.label.game import LabelledGame, play_game
from training.label.settings import LabelSettings

ENGINES_PER_PROCESS = 8
"""Engines per process: a position takes this process 0.4 ms, and Stockfish 6 ms at 4,000 nodes."""


@dataclass(frozen=True, slots=True)
class LabelJob:
    """The GameJob of labelled games. backend: of the evaluator for the branches' network."""

    settings: LabelSettings
    openings: tuple[Opening, ...]
    backend: str = ""

    @property
    def options(self) -> Options | None:
        """Options of the network that branches are sampled from."""
        settings = self.settings
        if not settings.branch_network:
            return None
        options = Options(
            weights=str(network_file(settings.branch_network)),
            hash=2,
            tree_memory=64,
        )
        return options.changed(backend=self.backend) if self.backend else options

    @property
    def engines(self) -> tuple[Options, ...]:
        return () if self.options is None else (self.options,)

    @property
    def workers(self) -> int:
        """Number of concurrent engines."""
        return self.settings.workers or usable_processors()

    def games_at_once(self, pool: SearchPool | None) -> int:
        return self.workers

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> LabelExecutor:
        options = None if self.options is None else context.options(self.options)
        if options is not None and pool is None:
            pool = context.search_pool(log)
        return LabelExecutor(self, options, log, pool)


class LabelExecutor(LocalExecutor[LabelledGame, LabelJob]):
    """Plays games in this process."""

    failures = (NoEngineError, NoEvaluatorError)

    def __init__(self, job: LabelJob, options: Options | None, log: Log, pool: SearchPool | None) -> None:
        """options: of a network, which requires a pool."""
        super().__init__(job, pool)
        self._options, self._log = options, log
        self._idle: list[Labeller] = []
        self._all: list[Labeller] = []

    async def start(self) -> int:
        """Check that an engine starts."""
        labeller = self._labeller()
        await labeller.start()
        self._idle.append(labeller)
        return self.job.workers

    def statistics(self) -> PoolStatistics:
        """Return statistics: of the evaluators, the engines' searches, and labelled positions as moves."""
        return replace(
            super().statistics(),
            searches=sum(labeller.searches for labeller in self._all),
            moves=sum(labeller.labels for labeller in self._all),
        )

    async def close(self) -> None:
        await asyncio.gather(*(labeller.close() for labeller in self._idle))
        await super().close()

    def _labeller(self) -> Labeller:
        labeller = Labeller(self.job.settings, self._log)
        self._all.append(labeller)
        return labeller

    async def play_game(self, number: int) -> LabelledGame:
        labeller = self._idle.pop() if self._idle else self._labeller()
        player = None if self.pool is None or self._options is None else self.pool.player(self._options)
        try:
            game = await play_game(
                number,
                self.job.settings,
                self.job.openings,
                labeller,
                None if player is None else partial(_policy, player),
            )
        except BaseException:
            await labeller.kill()  # It may still be searching.
            raise
        self._idle.append(labeller)
        return game


async def _policy(player: PoolPlayer, game: Game) -> dict[str, float]:
    """Return the network's policy. Raises NoEvaluatorError."""
    found: dict[str, float] = {}

    def look(tree: Tree) -> None:  # In the pool's thread.
        found.update({child.move: child.policy for child in tree.children()})

    player.new_game()
    search: Any = player.search(game, Limits(nodes=1), inspect=look)
    await asyncio.wrap_future(search)
    return found

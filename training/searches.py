# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches of all positions of labelled games, for annotations: a GameJob whose game is a run of games of a
shard, one of them if it has many positions.

Each position is searched by a tree of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine._core import Game, Tree
from engine.apps.shards import read_shard
from engine.evaluation.errors import NetworkChangedError, NoEvaluatorError
from engine.options import Options
from engine.search.limits import Limits
from engine.search.pool import PoolPlayer, SearchPool, answer
from engine.search.report import Report
from engine.workers.executor import ExecutorError, LocalExecutor, Log, WorkerContext, play_together
from protocol.common.printing import reason
from training.data.replay import ShardGames

PULL = 0.75
"""Weight of the network's policy against q in a search of one node; it falls with the square root of the
nodes (docs/lab/training.md)."""

NEWTON_STEPS = 12

SEARCHES_AT_ONCE = 512
"""Concurrent searches of a process: each has some five positions in flight, and a tree of 0.45 MB. Rows that
wait take over, so that the ends of games leave no gap."""

ROWS_IN_ORDER = 8
"""Rows of a game that one player searches, one after the other: what it evaluated below the move to the next
one is in its cache."""

SEARCHES = Options(
    hash=2,
    tree_memory=16,
    smart_pruning_factor=0.0,
    look_ahead=0,
    visits_per_position=4,
    in_flight_factor=0.0,
    subtree_value_bias=0.0,
)
"""Options of the searches: those of play, with batches for throughput. Its constants find better moves than
those of self-play (docs/lab/training.md).

Hundreds of searches fill the device's batches, so positions looked ahead would be wasted: up to six for each
that is needed. A quarter of each tree is in flight on every device, as on CPUs. That takes 1.15 ms of
processor time for 100 nodes instead of 1.85 ms.
"""


@dataclass(frozen=True, slots=True)
class SearchedGame:
    """The searches of a run of games. number: of the run in the job. rows: [k] of the shard. counts: [k]
    legal moves. logits: [sum of counts] of `improved_policy`. wdl: [k, 3] of the best moves. network:
    NetworkInfo.identity. failure: why the run was not searched, else empty."""

    number: int
    rows: NDArray[np.int64]
    counts: NDArray[np.int64]
    logits: NDArray[np.float32]
    wdl: NDArray[np.float32]
    network: str
    failure: str = ""


@dataclass(frozen=True, slots=True)
class SearchJob:
    """games: path of a shard, first of its games and the one after the last, by number in the job. positions:
    of all games. nodes: visits of each search."""

    games: tuple[tuple[str, int, int], ...]
    positions: int
    options: Options
    nodes: int

    @property
    def engines(self) -> tuple[Options, ...]:
        return (self.options,)

    def games_at_once(self, pool: SearchPool | None) -> int:
        return len(self.games)

    def executor(self, log: Log, context: WorkerContext, pool: SearchPool | None = None) -> SearchExecutor:
        job = replace(self, options=context.options(self.options))
        return SearchExecutor(job, pool or context.search_pool(log), context.processes)


class SearchExecutor(LocalExecutor[SearchedGame, SearchJob]):
    """Searches games in this process."""

    pool: SearchPool
    failures = (NoEvaluatorError, NetworkChangedError)

    def __init__(self, job: SearchJob, pool: SearchPool, processes: int) -> None:
        super().__init__(job, pool)
        self._processes = processes
        self._turns = asyncio.Semaphore(SEARCHES_AT_ONCE)
        self._idle: list[PoolPlayer] = []

    async def start(self) -> int:
        """Wait for the evaluator."""
        await asyncio.to_thread(self.pool.connections, self.job.options)
        rows = 2 * SEARCHES_AT_ONCE * ROWS_IN_ORDER * self._processes
        return ceil(rows * len(self.job.games) / max(1, self.job.positions))

    async def play_game(self, number: int) -> SearchedGame:
        path, first, after = self.job.games[number]
        game, replayed = first, dict[int, Game]()
        try:
            for game in range(first, after):
                replayed.update(_games(path).rows(game))
        except Exception as error:  # The other games go on, whatever it is.
            none, empty = np.zeros(0, np.int64), np.zeros(0, np.float32)
            failure = f"game {game}: {reason(error)}"
            return SearchedGame(number, none, none, empty, empty.reshape(0, 3), "", failure)
        positions = [*replayed.values()]
        parts = [positions[k : k + ROWS_IN_ORDER] for k in range(0, len(positions), ROWS_IN_ORDER)]
        searches = await play_together(map(self._search, parts))
        found = [*chain.from_iterable(searches)]
        networks = {report.network for _, report in found}
        if len(networks) > 1:
            raise ExecutorError("the evaluator's network changed: start again")
        return SearchedGame(
            number,
            np.array(list(replayed), np.int64),
            np.array([len(shares) for shares, _ in found], np.int64),
            np.concatenate([shares for shares, _ in found]) if found else np.zeros(0, np.float32),
            np.array([report.lines[0].wdl for _, report in found], np.float32).reshape(-1, 3),
            networks.pop() if networks else "",
        )

    async def _search(self, positions: Sequence[Game]) -> list[tuple[NDArray[np.float32], Report]]:
        """Return each position's `improved_policy`, of its moves in the core's order, and report."""
        async with self._turns:
            player = self._idle.pop() if self._idle else self.pool.player(self.job.options)
            found = await asyncio.wrap_future(self.pool.drive(self._in_order(player, positions)))
            self._idle.append(player)
        return found

    async def _in_order(
        self, player: PoolPlayer, positions: Sequence[Game]
    ) -> list[tuple[NDArray[np.float32], Report]]:
        found = []
        for position in positions:
            player.new_game()
            found.append(await self._searched(player, position))
        return found

    async def _searched(self, player: PoolPlayer, position: Game) -> tuple[NDArray[np.float32], Report]:
        moves = position.legal_moves()
        policy, q, visits = np.full((3, len(moves)), 1e-6)

        def look(tree: Tree) -> None:  # In the pool's thread.
            for child in tree.children():
                place = moves.index(child.move)
                policy[place] = max(1e-6, child.policy)
                if child.visits:
                    q[place], visits[place] = child.evaluation.q, child.visits

        report = await answer(player.search(position, Limits(nodes=self.job.nodes), inspect=look))
        proved = visits.sum() < self.job.nodes - 1  # then the search ended
        q[visits < 1] = -1.0 if proved else np.average(q, weights=visits)
        return improved_policy(policy, q, self.job.nodes), report


def improved_policy(policy: NDArray[np.float64], q: NDArray[np.float64], nodes: int) -> NDArray[np.float32]:
    """Return the logarithms of the policy to which the visits of a search converge, [n].

    policy: [n] of the network, above 0. q: [n] of the moves. It has the largest mean of q, less its
    divergence from the network's policy (Grill et al. 2020): values tell more than few visits.
    """
    pull = PULL / nodes**0.5
    level = float((q + pull * policy).max())  # below the solution; the sum is convex and falls
    for _ in range(NEWTON_STEPS):
        shares = pull * policy / (level - q)
        level += float((shares.sum() - 1) / (shares / (level - q)).sum())
    result: NDArray[np.float32] = np.log(pull * policy / (level - q)).astype(np.float32)
    return result


@lru_cache(2)
def _games(path: str) -> ShardGames:
    return ShardGames(read_shard(Path(path)))

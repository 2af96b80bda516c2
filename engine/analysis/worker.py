# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker process that searches positions for the process with the clients: the worker's end.

It receives ("begin", query's number, packed query, position's number, turn, network, megabytes of tree and of
hash, owner), ("stop", position's number), ("clear_cache", owner), and ("reconnect",) after an evaluator was
given up.
It sends ("reported", number, answer) and ("ended", number, answer, True if the evaluator is lost).
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from engine.analysis.local import LocalSearches
from engine.analysis.query import Query
from engine.analysis.searching import Position
from engine.evaluation.errors import NoEvaluatorError
from engine.options import Options
from engine.pool.pool import SearchPool
from engine.workers.executor import ExecutorError, WorkerContext, WorkerReport
from engine.workers.worker_role import Say

QUERIES_KEPT = 256
"""Recent queries kept, so that they are not unpacked for each of their positions."""


@dataclass(frozen=True, slots=True)
class AnalysisJob:
    """The initial data of workers. searches: concurrent ones of all workers together."""

    options: Options
    searches: int

    @property
    def engines(self) -> tuple[Options, ...]:
        return (self.options,)


class PositionWorker:
    """A WorkerRole that searches positions."""

    def __init__(self, job: AnalysisJob, context: WorkerContext, say: Say) -> None:
        self._say = say
        self._options = context.options(job.options)
        self._messages: list[str] = []
        self._queries: dict[int, Query] = {}
        self._loop = asyncio.get_running_loop()
        self._pool: SearchPool = context.search_pool(self._messages.append, "analysis")
        self._searches = LocalSearches(
            self._pool,
            self._options,
            self,
            self._post,
            most_idle=ceil(job.searches / context.processes),
            log=self._messages.append,
        )

    def _post(self, piece: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(piece)

    # -- a WorkerRole ---------------------------------------------------------------------------------------

    async def open(self) -> int:
        """Wait for the evaluator, and return its best number of concurrent searches."""
        try:
            return await asyncio.to_thread(self._pool.recommended_games, self._options)
        except NoEvaluatorError as error:
            raise ExecutorError(str(error)) from None

    async def report(self) -> WorkerReport:
        messages = self._messages[:]
        del self._messages[: len(messages)]
        return self._pool.statistics(), messages

    async def close(self) -> WorkerReport:
        await asyncio.to_thread(self._pool.close)
        return await self.report()

    def hear(self, message: Any) -> None:
        what, *arguments = message
        if what == "begin":
            self._begin(*arguments)
        elif what == "stop":
            self._searches.stop(*arguments)
        elif what == "clear_cache":
            self._searches.clear_cache(*arguments)
        else:
            for link in self._pool.links(self._options):
                link.start()

    def _begin(
        self,
        query_number: int,
        packed: bytes,
        number: int,
        turn: int,
        network: str,
        tree: int,
        cache: int,
        owner: str,
    ) -> None:
        query = self._queries.get(query_number)
        if query is None:
            query = self._queries[query_number] = pickle.loads(packed)
            if len(self._queries) > QUERIES_KEPT:
                del self._queries[next(iter(self._queries))]
        self._searches.begin(Position(number, query_number, query, turn, network, tree, cache, owner))

    # -- a Listener --------------------------------------------------------------------------------------

    def wants_report(self, _number: int) -> bool:
        return True  # Only the other process knows if the client reads.

    def reported(self, number: int, answer: bytes) -> None:
        self._say(("reported", number, answer))

    def ended(self, number: int, answer: bytes, evaluator_lost: bool) -> None:
        self._say(("ended", number, answer, evaluator_lost))

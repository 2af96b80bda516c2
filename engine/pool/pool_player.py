"""One side of one game of a pool (engine/pool/pool.py)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING

from engine._core import Game, Tree
from engine.evaluation.shared import SharedEvaluator
from engine.options import Options
from engine.pool.search import PooledSearch
from engine.search.limits import Limits
from engine.search.report import Report
from engine.session import SearchTree

if TYPE_CHECKING:
    from engine.pool.pool import SearchPool


class PoolPlayer:
    """Options, a tree, at most one search at a time. Made by SearchPool.player."""

    def __init__(
        self, pool: SearchPool, options: Options, evaluator: SharedEvaluator, random: Random
    ) -> None:
        self.options = options
        self.random = random
        self._pool = pool
        self._evaluator = evaluator
        self._tree = SearchTree()
        self._running: PooledSearch | None = None

    def new_game(self) -> None:
        """Forget the tree. Nothing may be under way."""
        self._tree.new_game()

    def search(
        self,
        game: Game,
        limits: Limits,
        *,
        clock_started: float | None = None,
        prepare: Callable[[Tree], None] | None = None,
        inspect: Callable[[Tree], None] | None = None,
    ) -> Future[Report]:
        """Search the game's current position; the future gets the report, or NoEvaluatorError.

        clock_started: when the clock began to run, in perf_counter seconds; now if None. prepare and inspect
        get the tree in the pool's thread, just before the search (to add noise, say) and just after. Raises
        RuntimeError if the player is searching.
        """
        if self._running is not None and not self._running.future.done():
            raise RuntimeError("this player is searching already")
        if not game.legal_moves():
            over: Future[Report] = Future()
            over.set_result(Report(best_move=None, ponder=None))
            return over
        started = perf_counter() if clock_started is None else clock_started
        running = self._running = PooledSearch(
            self._pool.waiting,
            self._evaluator,
            self._tree,
            self.options,
            game.copy(),
            limits,
            started,
            self.random,
            prepare,
            inspect,
        )
        # Whoever waits for the future in an event loop may be cancelled; the search ends by `stop` alone.
        running.future.set_running_or_notify_cancel()
        self._pool.submit(running)
        return running.future

    def stop(self) -> None:
        """End the search under way; its future gets the report as it stands."""
        if self._running is not None and not self._running.future.done():
            self._pool.stop(self._running)

    def close(self) -> None:
        """End the search under way and forget the tree."""
        self.stop()
        if self._running is not None and not self._running.future.done():
            self._running.future.exception(timeout=60)
        self._tree = SearchTree()

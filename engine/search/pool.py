# SPDX-License-Identifier: GPL-3.0-or-later
"""The search pool: many searches in one process, on shared evaluators, for matches, self-play and analysis.

PoolPlayer.search submits a PooledSearch. The pool's thread runs all searches (loop.py). Players whose options
name the same evaluator share its process and connection, whatever networks they use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from time import perf_counter
from types import coroutine as awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from engine._core import Game, Tree
from engine.evaluation.errors import NoEvaluatorError
from engine.evaluation.link.link import EvaluatorLink
from engine.evaluation.link.process import EvaluatorSettings
from engine.evaluation.send.pooled import PooledEvaluator
from engine.options import Options
from engine.search.limits import Limits
from engine.search.loop.batching import Speed
from engine.search.loop.evaluation import Evaluated, PooledEvaluation
from engine.search.loop.loop import SearchLoop
from engine.search.loop.search import Observer, PooledSearch
from engine.search.player.player import Player
from engine.search.player.tree import SearchTree
from engine.search.report import Report
from protocol.common.closing import Closing

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.wire.messages import NetworkInfo, Priority

Pooled = PooledSearch | PooledEvaluation
"""The tasks of a pool."""

T = TypeVar("T")

ANSWER_SECONDS = 10.0
"""Longest wait for an answer of the pool's thread."""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """The evaluations of a pool's searches since it was opened.

    evaluations: positions. seconds: since the first one. mean_batch: positions per device batch, including
    those of other clients. moves: played in the games of the searches, running games included, if the owner
    counts them.
    """

    searches: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    mean_batch: float = 0.0
    moves: int = 0

    @property
    def positions_per_second(self) -> float:
        return self.evaluations / self.seconds if self.seconds > 0 else 0.0


@awaitable
def answer(future: Future[T]) -> Generator[Future[T], None, T]:
    """Wait for a future in a coroutine of `SearchPool.drive`, and return its result or raise its error."""
    if not future.done():
        yield future
    return future.result()


class SearchPool(Closing):
    """Run the searches of its players. Any thread may call `player` and `close`.

    log: receives messages for the user, from several threads.
    """

    def __init__(
        self,
        *,
        log: Callable[[str], None] = lambda text: None,
        priority: Priority = "selfplay",
        pools: int = 1,
    ) -> None:
        """pools: number of similar pools, one per process, that use these evaluators."""
        self._log = log
        self._priority: Priority = priority
        self._loop = SearchLoop(pools)
        self._ending = False
        self._lock = threading.Lock()
        self._evaluators: dict[EvaluatorSettings, PooledEvaluator[Pooled]] = {}
        self._closed = False
        self._logged: set[str] = set()
        self.searching = 0
        """Number of running searches. Only `search` of a player changes it."""
        self._thread = threading.Thread(target=self._work, name="search-pool", daemon=True)
        self._thread.start()

    def player(self, options: Options, random: Random | None = None) -> PoolPlayer:
        """Return a player with its own tree. Its evaluator is connected or started in the background.

        random: for noise and temperature, used while a search runs.
        """
        return PoolPlayer(self, options, self._evaluator(EvaluatorSettings.of(options)), random or Random())

    def evaluate(self, games: Sequence[Game], options: Options) -> Evaluated:
        """Evaluate the current positions of games, at least one, by the network alone, in one batch."""
        running = PooledEvaluation(self._evaluator(EvaluatorSettings.of(options)), games, options)
        self.submit(running)
        return running.future

    def drive(self, coroutine: Coroutine[Future[Any], None, T]) -> Future[T]:
        """Run a coroutine in the pool's thread, and return the future of its result.

        It awaits the pool's futures by `answer`, and nothing else. Searches of a few visits take less time
        than a change of threads between one and the next. Cancelling the future closes the coroutine.
        """
        result: Future[T] = Future()

        def step(_: object = None) -> None:
            with suppress(InvalidStateError):  # It was cancelled just now.
                try:
                    if result.cancelled():
                        coroutine.close()
                    else:
                        coroutine.send(None).add_done_callback(step)
                except StopIteration as end:
                    result.set_result(end.value)
                except Exception as error:
                    result.set_exception(error)

        def cancelled(future: Future[T]) -> None:
            with suppress(RuntimeError):  # `close` stops all.
                if future.cancelled():
                    self.submit(step)

        result.add_done_callback(cancelled)
        self.submit(step)
        return result

    def links(self, options: Options) -> list[EvaluatorLink]:
        """Return the links to the evaluators of these options, which are connected in the background."""
        return self._evaluator(EvaluatorSettings.of(options)).links

    def connections(self, options: Options) -> list[EvaluatorClient]:
        """Wait for at least one connection to the evaluators of these options, and return all. Raises
        NoEvaluatorError."""
        evaluator = self._evaluator(EvaluatorSettings.of(options))
        while not (clients := evaluator.connections(1.0)):
            if self._closed:
                raise NoEvaluatorError("the pool is closed")
        return clients

    def networks(self, options: Options) -> tuple[NetworkInfo, ...] | None:
        """Return the current networks of these options' evaluator; None without one. Do not call this in the
        pool's thread, which answers it."""
        evaluator = self._evaluator(EvaluatorSettings.of(options))
        found: Future[tuple[NetworkInfo, ...] | None] = Future()
        self.submit(lambda: found.set_result(evaluator.networks()))
        try:
            return found.result(ANSWER_SECONDS)
        except TimeoutError:
            return None

    def recommended_games(self, options: Options) -> int:
        """Return how many concurrent games keep the evaluators of these options busy: they fill two batches
        of the recommended sizes, one computing and one queued. Waits for the evaluators. Raises
        NoEvaluatorError."""
        devices = [
            Speed(client.recommended_batch, client.max_batch, client.curve)
            for client in self.connections(options)
        ]
        return Speed.together(devices).games

    def statistics(self) -> PoolStatistics:
        """Return the totals of all evaluators."""
        with self._lock:
            evaluators = list(self._evaluators.values())
        first = min((e.first_sent for e in evaluators if e.first_sent is not None), default=None)
        evaluations = sum(evaluator.evaluations for evaluator in evaluators)
        batches = sum(evaluator.device_batches for evaluator in evaluators)
        return PoolStatistics(
            searches=sum(evaluator.searches for evaluator in evaluators),
            evaluations=evaluations,
            seconds=0.0 if first is None else perf_counter() - first,
            mean_batch=evaluations / batches if batches else 0.0,
        )

    def count(self, searches: int) -> None:
        """Count searches that begin, or that end if it is negative."""
        with self._lock:
            self.searching += searches

    def evaluator_pids(self) -> list[int]:
        """Return the process ids of the embedded evaluators."""
        with self._lock:
            pids = [link.pid for evaluator in self._evaluators.values() for link in evaluator.links]
        return [pid for pid in pids if pid is not None]

    def close(self) -> None:
        """Stop all searches, which report their results, and the embedded evaluators. Idempotent."""
        with self._lock:
            already, self._closed = self._closed, True
        if already:
            return
        self._loop.submit(self._end)
        self._thread.join()
        for evaluator in self._evaluators.values():
            evaluator.close()
        with self._lock:
            self._loop.close()

    def log_once(self, text: str) -> None:
        """Log a message that every player would repeat, once."""
        with self._lock:
            logged = text in self._logged
            self._logged.add(text)
        if not logged:
            self._log(text)

    def submit(self, what: Pooled | Callable[[], None]) -> None:
        """Submit a task, or a function to call, to the pool's thread."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._loop.submit(what, wake=threading.current_thread() is not self._thread)

    def _evaluator(self, settings: EvaluatorSettings) -> PooledEvaluator[Pooled]:
        key = replace(settings, weights="", policy_head="", value_head="")
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if key not in self._evaluators:
                self._evaluators[key] = PooledEvaluator(
                    settings, self._log, self._priority, self._loop.interrupt
                )
                self._loop.use(self._evaluators.values())
                self._evaluators[key].start()
            return self._evaluators[key]

    # -- the pool's thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._loop.active or not self._ending:
            self._loop.step()

    def _end(self) -> None:
        """Stop all tasks, and end the thread after them."""
        self._ending = True
        for each in self._loop.active:
            each.control.stop()


class PoolPlayer:
    """One side of one game: a player, and at most one running search. Created by SearchPool.player. owner: of
    its searches; all owners share the evaluators equally."""

    owner = ""

    def __init__(
        self, pool: SearchPool, options: Options, evaluator: PooledEvaluator[Any], random: Random
    ) -> None:
        self._pool = pool
        self._evaluator = evaluator
        self._player = Player(options, pool.log_once, random=random)
        self._running: PooledSearch | None = None

    @property
    def options(self) -> Options:
        """The options of the next search; those of the evaluator must not change."""
        return self._player.options

    @options.setter
    def options(self, options: Options) -> None:
        self._player.options = options

    def new_game(self) -> None:
        """Clear the tree. Nothing may be in flight."""
        self._player.new_game()

    def clear(self) -> None:
        """Clear the tree and the evaluation cache. Nothing may be in flight."""
        self._player.tree.clear()

    def search(
        self,
        game: Game,
        limits: Limits,
        *,
        clock_started: float | None = None,
        prepare: Callable[[Tree], None] | None = None,
        inspect: Callable[[Tree], None] | None = None,
        observer: Observer | None = None,
        play: bool = False,
    ) -> Future[Report]:
        """Search the game's current position. The future gets the report, or NoEvaluatorError.

        clock_started: in perf_counter seconds (default: now). prepare, inspect: called with the tree in the
        pool's thread, just before the search (for example to add noise) and just after. observer: observes
        the running search. play: the move is for a game, so BookFile and the options of strength apply.
        Raises RuntimeError if the player is searching.
        """
        if self._running is not None and not self._running.future.done():
            raise RuntimeError("this player is searching already")
        started = perf_counter() if clock_started is None else clock_started
        task = self._player.task(game.copy(), limits, started)
        running = self._running = PooledSearch(
            self._evaluator,
            self._player,
            task,
            play=play,
            prepare=prepare,
            inspect=inspect,
            observer=observer,
        )
        running.owner = self.owner
        if not running.take_first_step():
            # Cancelling a task that waits for the future must not cancel the search, which only `stop` ends.
            running.future.set_running_or_notify_cancel()
            self._pool.count(1)
            running.future.add_done_callback(lambda _: self._pool.count(-1))
            self._pool.submit(running)
        return running.future

    def stop(self) -> None:
        """Stop the running search. Its future gets the report so far."""
        if self._running is not None and not self._running.future.done():
            self._running.control.stop()

    def close(self) -> None:
        """Stop the running search and delete the tree."""
        self.stop()
        if self._running is not None and not self._running.future.done():
            self._running.future.exception(timeout=60)
        self._player.tree = SearchTree()

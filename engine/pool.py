"""Many searches in one process on shared evaluators: matches and self-play.

One thread drives them all. A search is advanced when an answer of its own has come or its time limit must be
looked at; the rest of the time the thread sleeps until there is an answer or something to do. Players whose
options name the same evaluator share its process and connection, whatever networks they use; what they
collect travels together (engine/shared_evaluator.py).
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil
from random import Random
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from engine._core import Game, Tree
from engine.evaluator_process import EvaluatorLink, EvaluatorSettings, NoEvaluatorError
from engine.limits import Limits
from engine.options import Options
from engine.pipeline import PipelineError
from engine.report import Report
from engine.search import BatchSizes, Search, SearchControl, SearchPosition
from engine.session import SearchTree
from engine.shared_evaluator import SharedEvaluator, SharedPipeline, network_key

if TYPE_CHECKING:
    from protocol.messages import NetworkInfo, Priority

LOOK_SECONDS = 0.01
"""Time between two looks at the searches that the clock may end, and at those that have no evaluator yet."""

POSITIONS_PER_GAME = 8
"""Positions that one game contributes to a device batch, as a rule: more of them in flight weaken its search,
since they are chosen before what they could learn from each other is known."""

MAX_RECOMMENDED_GAMES = 256

STEPS_PER_SECOND = 800
"""Steps (an answer taken, more positions collected) of all searches of a pool together, at most: each costs
some 70 µs of processor time, which a CPU backend lacks."""

MAX_POSITIONS_PER_STEP = 16
"""For the sake of fewer steps on fast devices; see POSITIONS_PER_GAME."""

FEW_POSITIONS = 4
"""So many at a time weaken no search: it begins with as many."""

FEW_SEARCHES_POSITIONS = 64
"""Few searches send FEW_POSITIONS each until they are so many together, or each device batch and each request
would carry one or two."""


def positions_per_step(network: NetworkInfo, searches: int) -> int:
    """How many positions each of so many searches sends at a time.

    Together they are to keep two batches of the recommended size on their way, one at work and one waiting. A
    longer queue gains nothing: it delays answers and weakens searches. Only where that would mean too many
    steps, or too small ones, are they larger.
    """
    best = network.recommended_batch
    if searches < 2:
        return best
    fair = ceil(2 * best / searches)
    rate = max((1000 * batch / ms for batch, ms in network.curve if ms > 0), default=0.0)
    few = min(FEW_POSITIONS, ceil(FEW_SEARCHES_POSITIONS / searches))
    least = min(MAX_POSITIONS_PER_STEP, max(few, ceil(rate / STEPS_PER_SECOND)))
    return max(1, min(best, max(fair, least)))


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """What the searches of a pool asked of their evaluators, since it was opened.

    evaluations: positions. seconds: since the first one. mean_batch: positions per batch as the devices ran
    them, the batches of other clients merged in. moves: made in the games that the searches are for, where
    somebody counts them; games under way included.
    """

    searches: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    mean_batch: float = 0.0
    moves: int = 0

    @property
    def positions_per_second(self) -> float:
        return self.evaluations / self.seconds if self.seconds > 0 else 0.0


class SearchPool:
    """Runs the searches of its players. `player` and `close` may be called from any thread.

    log takes messages for the user, from several threads.
    """

    def __init__(
        self,
        *,
        log: Callable[[str], None] = lambda text: None,
        priority: Priority = "selfplay",
        pools: int = 1,
    ) -> None:
        """pools: how many, in as many processes, run searches on these evaluators, each about as many."""
        self._log = log
        self._priority: Priority = priority
        self._pools = pools
        # Searches to begin or to stop, and None to end all.
        self._asked: queue.SimpleQueue[_Running | None] = queue.SimpleQueue()
        self._waker = _Waker()
        self._ending = False
        self._lock = threading.Lock()
        self._evaluators: dict[tuple[str, str, int], SharedEvaluator] = {}
        self._closed = False
        # The searches under way by what they send through; used by the pool's thread alone.
        self.waiting: dict[SharedPipeline, _Running] = {}
        self._thread = threading.Thread(target=self._work, name="search-pool", daemon=True)
        self._thread.start()

    def player(self, options: Options, random: Random | None = None) -> PoolPlayer:
        """A player with a tree of its own. Its evaluator is found or started in the background.

        random: for noise and temperature, used while a search is under way.
        """
        return PoolPlayer(self, options, self._evaluator(EvaluatorSettings.of(options)), random or Random())

    def link(self, options: Options) -> EvaluatorLink:
        """The connection to the evaluator of these options, which is found or started in the background."""
        return self._evaluator(EvaluatorSettings.of(options)).link

    def recommended_games(self, options: Options) -> int:
        """How many games at once keep the evaluator of these options busy: as many as fill two batches of the
        size it recommends, one at work and one waiting. Waits for the evaluator. Raises NoEvaluatorError."""
        evaluator = self._evaluator(EvaluatorSettings.of(options))
        while (client := evaluator.link.wait(1.0)) is None:
            if self._closed:
                raise NoEvaluatorError("the pool is closed")
        return max(2, min(MAX_RECOMMENDED_GAMES, ceil(2 * client.recommended_batch / POSITIONS_PER_GAME)))

    def statistics(self) -> PoolStatistics:
        """The totals of all evaluators."""
        with self._lock:
            evaluators = list(self._evaluators.values())
        first = min((e.first_sent for e in evaluators if e.first_sent is not None), default=None)
        evaluations = sum(evaluator.evaluations for evaluator in evaluators)
        batches = sum(evaluator.device_batches for evaluator in evaluators)
        return PoolStatistics(
            searches=sum(evaluator.searches for evaluator in evaluators),
            evaluations=evaluations,
            seconds=0.0 if first is None else monotonic() - first,
            mean_batch=evaluations / batches if batches else 0.0,
        )

    def evaluator_pids(self) -> list[int]:
        """Process ids of the evaluators that were started."""
        with self._lock:
            pids = [evaluator.link.pid for evaluator in self._evaluators.values()]
        return [pid for pid in pids if pid is not None]

    def close(self) -> None:
        """End all searches, which report what they have, and the evaluators that were started. Idempotent."""
        with self._lock:
            already, self._closed = self._closed, True
        if already:
            return
        self._asked.put(None)
        self._waker.wake()
        self._thread.join()
        for evaluator in self._evaluators.values():
            evaluator.link.close()
        with self._lock:
            self._waker.close()

    def __enter__(self) -> SearchPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, running: _Running) -> None:
        """Hand a search to the pool's thread."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._asked.put(running)
            self._waker.wake()

    def stop(self, running: _Running) -> None:
        """End a search soon."""
        running.control.stop()
        with self._lock:
            if not self._closed:  # Closing stops them all.
                self._asked.put(running)
                self._waker.wake()

    def _evaluator(self, settings: EvaluatorSettings) -> SharedEvaluator:
        key = (settings.address, settings.backend, settings.threads)
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if key not in self._evaluators:
                self._evaluators[key] = SharedEvaluator(
                    settings, self._log, self._priority, self._waker.fileno()
                )
            return self._evaluators[key]

    # -- the pool's thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        active: set[_Running] = set()
        watched: set[_Running] = set()  # Of these, those that something else than an answer may move on.
        due: set[_Running] = set()
        next_look = 0.0
        while True:
            due |= self._take_new(active)
            if not active and self._ending:
                return
            now = perf_counter()
            if watched and now >= next_look:
                next_look = now + LOOK_SECONDS
                due.update(running for running in watched if running.must_be_looked_at(now))
            with self._lock:
                evaluators = list(self._evaluators.values())
            awaited = [evaluator for evaluator in evaluators if evaluator.awaited]
            wait_seconds: float | None = None
            if due:
                wait_seconds = 0.0
            elif watched or any(evaluator.stranded for evaluator in evaluators):
                wait_seconds = max(0.0, next_look - now) if watched else LOOK_SECONDS
            for evaluator in awaited:
                due |= {self.waiting[each] for each in evaluator.receive(_share_ms(wait_seconds, awaited))}
            if not awaited:
                self._waker.wait(wait_seconds)
            again: set[_Running] = set()
            for running in due:
                if running.advance(len(active) * self._pools):
                    (watched.add if running.watched else watched.discard)(running)
                    if running.can_go_on:
                        again.add(running)
                else:
                    active.discard(running)
                    watched.discard(running)
            due = again
            for evaluator in evaluators:
                due |= {self.waiting[each] for each in evaluator.flush()}

    def _take_new(self, active: set[_Running]) -> set[_Running]:
        """Add the searches that have come to the active ones; returns those, and the ones told to stop."""
        due: set[_Running] = set()
        self._waker.clear()
        while not self._asked.empty():
            running = self._asked.get()
            if running is None:
                self._ending = True
            elif not running.future.done():
                due.add(running)
        active |= due
        if self._ending:
            for each in active:
                each.control.stop()
            due |= active
        return due


def _share_ms(seconds: float | None, evaluators: Sequence[SharedEvaluator]) -> float | None:
    """How long to wait for each of several evaluators, one after the other: a little if there are several."""
    if len(evaluators) > 1:
        seconds = min(seconds if seconds is not None else LOOK_SECONDS, LOOK_SECONDS) / len(evaluators)
    return None if seconds is None else 1000 * seconds


class _Waker:
    """Ends a thread's sleep from any other."""

    def __init__(self) -> None:
        self._out, self._in = socket.socketpair()
        self._out.setblocking(False)
        self._in.setblocking(False)

    def fileno(self) -> int:
        """Readable when somebody has called `wake`."""
        return self._out.fileno()

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._in.send(b"\0")  # A full buffer wakes as well.

    def wait(self, seconds: float | None) -> None:
        """Sleep until `wake` (also an earlier one), at most so long."""
        select.select([self._out], [], [], seconds)

    def clear(self) -> None:
        """Forget all calls of `wake`."""
        with contextlib.suppress(BlockingIOError):
            while self._out.recv(4096):
                pass

    def close(self) -> None:
        self._out.close()
        self._in.close()


class PoolPlayer:
    """One side of one game: options, a tree, at most one search at a time."""

    def __init__(
        self, pool: SearchPool, options: Options, evaluator: SharedEvaluator, random: Random
    ) -> None:
        self.options = options
        self.random = random
        self._pool = pool
        self._evaluator = evaluator
        self._tree = SearchTree()
        self._running: _Running | None = None

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
        running = self._running = _Running(
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


class _Running:
    """One search: waits for its network, then advances until it is over. Belongs to the pool's thread."""

    def __init__(
        self,
        waiting: dict[SharedPipeline, _Running],
        evaluator: SharedEvaluator,
        tree: SearchTree,
        options: Options,
        game: Game,
        limits: Limits,
        started: float,
        random: Random,
        prepare: Callable[[Tree], None] | None,
        inspect: Callable[[Tree], None] | None,
    ) -> None:
        self.future: Future[Report] = Future()
        self.control = SearchControl(pondering=limits.ponder)
        self.failure: Exception | None = None
        self._waiting = waiting
        self._evaluator = evaluator
        self._tree = tree
        self._options = options
        self._game = game
        self._limits = limits
        self._started = started
        self._random = random
        self._prepare = prepare
        self._inspect = inspect
        self._prepared: Tree | None = None
        self._pipeline: SharedPipeline | None = None
        self._search: Search | None = None

    @property
    def watched(self) -> bool:
        """Whether something else than an answer may move it on: an evaluator that comes up, or the clock."""
        return self._search is None or self._search.wakes_at is not None

    @property
    def can_go_on(self) -> bool:
        """Whether it waits for nothing: all that it collected was answered on the spot."""
        search, pipeline = self._search, self._pipeline
        return search is not None and pipeline is not None and not pipeline.in_flight and not search.idle

    def must_be_looked_at(self, now: float) -> bool:
        """Whether that may have happened. now: perf_counter seconds."""
        wakes_at = None if self._search is None else self._search.wakes_at
        return wakes_at is None or now >= wakes_at

    def advance(self, searches: int) -> bool:
        """Go on; False when it is over and the future has its result. searches: how many are under way."""
        try:
            if self._search is None and not self._begin(searches):
                return True
            assert self._search is not None and self._pipeline is not None
            self.failure = self._pipeline.failure
            if self.failure is None and self._search.advance():
                return True
        except (PipelineError, NoEvaluatorError) as error:
            self.failure = error
        except Exception as error:  # A fault of this search must not end the others.
            self.failure = error
        self._end()
        return False

    def _begin(self, searches: int) -> bool:
        """Set the search up; False while there is no evaluator."""
        legal = self._game.legal_moves()
        evaluator = self._evaluator
        key = network_key(EvaluatorSettings.of(self._options))
        network, client = evaluator.network(key), evaluator.client
        if network is None or client is None:
            if self.control.stopped:
                raise NoEvaluatorError("stopped before the evaluator was ready")
            return False
        tree = self._tree.prepared(self._options, network.input_format, network.content_hash)
        allowed = [move for move in self._limits.search_moves if move in legal]
        self._tree.set_root(self._game, allowed, self._options, self._random)
        if self._prepare is not None:
            self._prepare(tree)
        self._prepared = tree
        sizes = BatchSizes(min(positions_per_step(network, searches), client.max_batch), client.curve)
        options = self._options
        if searches > 1:  # While one waits for its answer, the device is busy with the others'.
            options = options.changed(batches_in_flight=1)
        capacity = min(self._options.minibatch_size or sizes.best, client.max_batch)
        self._pipeline = SharedPipeline(tree, evaluator, key, network.content_hash, capacity)
        self._search = Search(
            tree,
            self._pipeline,
            SearchPosition(self._game.turn, self._game.ply // 2 + 1, allowed or legal),
            self._limits,
            options,
            sizes,
            control=self.control,
            started=self._started,
            log=evaluator.log,
            random=self._random,
        )
        self._waiting[self._pipeline] = self
        return True

    def _end(self) -> None:
        pipeline, search = self._pipeline, self._search
        if pipeline is not None:
            self._waiting.pop(pipeline, None)
        if search is None:
            self.future.set_exception(self.failure or NoEvaluatorError("the search did not begin"))
            return
        try:
            report = search.finish()
            if self._inspect is not None and self._prepared is not None:
                self._inspect(self._prepared)
        except Exception as error:
            self.future.set_exception(error)
            return
        self._evaluator.searches += 1
        if self.failure is None:
            self.future.set_result(report)
        elif isinstance(self.failure, PipelineError | NoEvaluatorError):
            # As in a search of its own: what was found so far is good, with a word on why it ended.
            self._evaluator.log(f"search ended early: {self.failure}")
            self.future.set_result(report)
        else:
            self.future.set_exception(self.failure)

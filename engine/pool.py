"""Many searches in one process on shared evaluators: matches and self-play.

One thread drives them all. A search is advanced when an answer of its own has come or its time limit must be
looked at; the rest of the time the thread waits for the evaluator. Players whose options name the same
evaluator share its process and connection, whatever networks they use; the evaluator merges their batches.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil
from random import Random
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING

from engine._core import Game, Tree
from engine.evaluator_process import EvaluatorLink, EvaluatorSettings, NoEvaluatorError
from engine.limits import Limits
from engine.options import Options
from engine.pipeline import PipelineError, RemotePipeline
from engine.report import Report
from engine.search import BatchSizes, Search, SearchControl, SearchPosition
from engine.session import SearchTree

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.messages import NetworkInfo, Priority

RECEIVE_MS = 5.0
"""Longest wait for the evaluator before new searches and time limits are looked at."""

LOOK_SECONDS = 0.01
"""Time between two looks at the limits of the searches that have had no answer."""

POSITIONS_PER_GAME = 8
"""Positions that one game contributes to a device batch, as a rule: more of them in flight weaken its search,
since they are chosen before what they could learn from each other is known."""

MAX_RECOMMENDED_GAMES = 256

REQUESTS_PER_SECOND = 800
"""Requests that a pool is to send at most: whatever its size, each costs about 150 µs of processor time here
and in the evaluator together, which a CPU backend lacks (800 of them 12 % of a core)."""

MAX_POSITIONS_PER_REQUEST = 16
"""For the sake of fewer requests on fast devices; see POSITIONS_PER_GAME."""


def positions_per_request(network: NetworkInfo, searches: int) -> int:
    """How many positions each of so many searches sends at a time.

    Together they are to keep two batches of the recommended size on their way, one at work and one waiting. A
    longer queue gains nothing: it delays answers, weakens searches, and tempts the evaluator into batches
    larger than any that it has measured. Only where that would mean too many requests are they larger.
    """
    best = network.recommended_batch
    if searches < 2:
        return best
    fair = ceil(2 * best / searches)
    rate = max((1000 * batch / ms for batch, ms in network.curve if ms > 0), default=0.0)
    least = min(MAX_POSITIONS_PER_REQUEST, ceil(rate / REQUESTS_PER_SECOND))
    return max(1, min(best, max(fair, least)))


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """What the searches of a pool asked of their evaluators, since it was opened.

    evaluations: positions. seconds: since the first one. mean_batch: positions per batch as the devices ran
    them, the batches of other clients merged in.
    """

    searches: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    mean_batch: float = 0.0

    @property
    def positions_per_second(self) -> float:
        return self.evaluations / self.seconds if self.seconds > 0 else 0.0


class SearchPool:
    """Runs the searches of its players. `player` and `close` may be called from any thread.

    log takes messages for the user, from several threads.
    """

    def __init__(
        self, *, log: Callable[[str], None] = lambda text: None, priority: Priority = "selfplay"
    ) -> None:
        self._log = log
        self._priority: Priority = priority
        self._new: queue.SimpleQueue[_Running | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._evaluators: dict[tuple[str, str, int], _SharedEvaluator] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="search-pool", daemon=True)
        self._thread.start()

    def player(self, options: Options, random: Random | None = None) -> PoolPlayer:
        """A player with a tree of its own. Its evaluator is found or started in the background.

        random: for noise and temperature, used while a search is under way.
        """
        return PoolPlayer(self, options, self._evaluator(EvaluatorSettings.of(options)), random or Random())

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
        self._new.put(None)
        self._thread.join()
        for evaluator in self._evaluators.values():
            evaluator.link.close()

    def __enter__(self) -> SearchPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, running: _Running) -> None:
        """Hand a search to the pool's thread."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._new.put(running)

    def _evaluator(self, settings: EvaluatorSettings) -> _SharedEvaluator:
        key = (settings.address, settings.backend, settings.threads)
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if key not in self._evaluators:
                self._evaluators[key] = _SharedEvaluator(settings, self._log, self._priority)
            return self._evaluators[key]

    # -- the pool's thread -------------------------------------------------------------------------------

    def _work(self) -> None:
        active: set[_Running] = set()
        open_for_more = True
        next_look = 0.0
        while open_for_more or active:
            due: set[_Running] = set()
            while open_for_more:
                try:
                    running = self._new.get(block=not active and not due)
                except queue.Empty:
                    break
                if running is None:
                    open_for_more = False
                    for each in active | due:
                        each.control.stop()
                    due |= active
                else:
                    due.add(running)
            active |= due
            now = perf_counter()
            if now >= next_look:
                next_look = now + LOOK_SECONDS
                due = set(active)
            with self._lock:
                evaluators = [evaluator for evaluator in self._evaluators.values() if evaluator.awaited]
            for evaluator in evaluators:
                timeout = 0.0 if due else RECEIVE_MS / len(evaluators)
                due |= {running for running in evaluator.receive(timeout) if running in active}
            if not due and not evaluators:
                sleep(RECEIVE_MS / 1000)
            for running in due:
                if not running.advance(len(active)):
                    active.discard(running)


class PoolPlayer:
    """One side of one game: options, a tree, at most one search at a time."""

    def __init__(
        self, pool: SearchPool, options: Options, evaluator: _SharedEvaluator, random: Random
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
        if self._running is not None:
            self._running.control.stop()

    def close(self) -> None:
        """End the search under way and forget the tree."""
        self.stop()
        if self._running is not None and not self._running.future.done():
            self._running.future.exception(timeout=60)
        self._tree = SearchTree()


class _SharedEvaluator:
    """A link, its client, and who waits for which answer. Used by the pool's thread alone, but for `link`."""

    def __init__(self, settings: EvaluatorSettings, log: Callable[[str], None], priority: Priority) -> None:
        self.settings = settings
        self.log = log
        self.priority: Priority = priority
        self.link = EvaluatorLink(settings, log)
        self.link.start()
        self.owners: dict[int, RemotePipeline] = {}
        self.runs: dict[RemotePipeline, _Running] = {}
        self.first_sent: float | None = None
        self.evaluations = 0
        self.searches = 0
        self.device_batches = 0.0
        self._client: EvaluatorClient | None = None
        self._networks: dict[tuple[str, str, str], NetworkInfo] = {}

    @property
    def awaited(self) -> bool:
        """Whether a search waits for an answer."""
        return bool(self.runs)

    def network(self, settings: EvaluatorSettings) -> NetworkInfo | None:
        """The network that a player wants, loaded if need be; None while there is no evaluator.

        Raises NoEvaluatorError if there is none to hope for, or it cannot serve the network.
        """
        from protocol.errors import EvaluatorError, EvaluatorLost

        client = self.link.wait(0.0)
        if client is None:
            return None
        if client is not self._client:
            self._client = client
            self._networks.clear()
        wanted = (settings.weights, settings.policy_head, settings.value_head)
        if wanted not in self._networks:
            own = self.settings
            if wanted == (own.weights, own.policy_head, own.value_head):
                self._networks[wanted] = client.network
            else:
                try:
                    self._networks[wanted] = self._load(client, *wanted)
                except EvaluatorLost as error:
                    self.link.lost(client, str(error))
                    return None
                except EvaluatorError as error:
                    raise NoEvaluatorError(
                        f"the evaluator cannot serve {settings.weights!r}: {error}"
                    ) from None
        return self._networks[wanted]

    @staticmethod
    def _load(client: EvaluatorClient, weights: str, policy_head: str, value_head: str) -> NetworkInfo:
        from pathlib import Path

        for network in client.networks:
            if weights in (network.name, network.content_hash):
                return network
        path = str(Path(weights).expanduser().resolve()) if weights else ""
        return client.load(path, policy_head=policy_head, value_head=value_head, timeout=600.0)

    def receive(self, timeout_ms: float) -> set[_Running]:
        """Hand out the answers that are there, waiting for the first one; returns whose they were."""
        from protocol.errors import EvaluatorLost

        served: set[_Running] = set()
        client = self.link.client
        if client is None or not client.in_flight:
            if timeout_ms and client is None:
                sleep(timeout_ms / 1000)
            return served
        while True:
            try:
                completed = client.receive(0.0 if served else timeout_ms)
            except EvaluatorLost as error:
                for pipeline, running in self.runs.items():
                    pipeline.lost(client, str(error))
                    served.add(running)
                self.owners.clear()
                return served
            if completed is None:
                return served
            owner = self.owners.pop(completed.id, None)
            if completed.evaluation is not None:
                if self.first_sent is None:
                    self.first_sent = monotonic() - (completed.queue_ms + completed.compute_ms) / 1000
                self.evaluations += len(completed.evaluation)
                self.device_batches += len(completed.evaluation) / max(1, completed.batch_rode)
            taker = None if owner is None else self.runs.get(owner)
            if owner is None or taker is None:
                continue
            try:
                owner.accept(completed)
            except PipelineError as error:
                taker.failure = error
            served.add(taker)


class _Running:
    """One search: waits for its network, then advances until it is over. Belongs to the pool's thread."""

    def __init__(
        self,
        evaluator: _SharedEvaluator,
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
        self._pipeline: RemotePipeline | None = None
        self._search: Search | None = None

    def advance(self, searches: int) -> bool:
        """Go on; False when it is over and the future has its result. searches: how many are under way."""
        try:
            if self._search is None and not self._begin(searches):
                return True
            assert self._search is not None and self._pipeline is not None
            # After a loss: a new evaluator may have to load the network first.
            if self._pipeline.waits_to_be_sent and self._network() is not None:
                self._pipeline.send_again()
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
        network = self._network()
        if network is None:
            if self.control.stopped:
                raise NoEvaluatorError("stopped before the evaluator was ready")
            return False
        client = evaluator.link.client
        if client is None:
            return False
        tree = self._tree.prepared(self._options, network.input_format, network.content_hash)
        allowed = [move for move in self._limits.search_moves if move in legal]
        self._tree.set_root(self._game, allowed, self._options, self._random)
        if self._prepare is not None:
            self._prepare(tree)
        self._prepared = tree
        sizes = BatchSizes(min(positions_per_request(network, searches), client.max_batch), client.curve)
        options = self._options
        if searches > 1:  # While one waits for its answer, the device is busy with the others'.
            options = options.changed(batches_in_flight=1)
        self._pipeline = RemotePipeline(
            tree,
            evaluator.link,
            capacity=min(self._options.minibatch_size or sizes.best, client.max_batch),
            input_format=network.input_format,
            priority=evaluator.priority,
            log=evaluator.log,
            network=network.name,
            owners=evaluator.owners,
        )
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
        evaluator.runs[self._pipeline] = self
        return True

    def _network(self) -> NetworkInfo | None:
        return self._evaluator.network(EvaluatorSettings.of(self._options))

    def _end(self) -> None:
        pipeline, search = self._pipeline, self._search
        if pipeline is not None:
            self._evaluator.runs.pop(pipeline, None)
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

# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the jobs of lichess's analysis board: one thread polls, and one answers each running job.

A session keeps its player, and so its tree from one position of a game to the next. A new job of a session
ends its running one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

from engine._core import Game
from engine.apps.lichess.broker import BoardJob, answer, poll, refuse
from engine.options import Options
from engine.search.limits import Limits
from engine.search.loop.driver import Search
from engine.search.loop.search import Observer
from engine.search.player.memory import LEAST_MB, cache_megabytes, tree_megabytes
from engine.search.pool import PoolPlayer, SearchPool
from engine.search.report import Report
from engine.uci.text import best_move_line, info_lines
from protocol.common.printing import reason

FIRST_S, EVERY_S = 0.02, 0.25
"""Time from the start of a search to its first report, and between later ones."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""Pause after a failed poll; each further failure doubles it."""

LEAST_S, LEAST_IDLE_S = 0.02, 1.0
"""Shortest time from one poll to the next, after a job and after none: brokers may answer at once."""

ENDLESS_MS = 24 * 3600 * 1000
"""A movetime that means infinite."""

END_S = 5.0
"""Time for running jobs to send their best move when the provider ends."""


@dataclass(eq=False, slots=True)
class BoardTab:
    """A tab of an analysis board. player: its tree, which one job at a time searches. stop: ends that one.
    waiting: jobs, the running one included."""

    player: PoolPlayer
    turn: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0

    def end(self) -> None:
        """End the running job, even if its search has not begun."""
        self.stop.set()
        self.player.stop()


@dataclass(slots=True)
class Counts:
    """Jobs by their end. left: the requester left, or asked for another one. failed: an answer did not
    arrive."""

    running: int = 0
    answered: int = 0
    left: int = 0
    failed: int = 0

    def __str__(self) -> str:
        text = f"{self.running} running, {self.answered:,} answered, {self.left:,} left"
        return f"{text}, {self.failed:,} failed" if self.failed else text


class Provider:
    """Answers jobs until `close`. Methods are thread-safe."""

    def __init__(
        self,
        pool: SearchPool,
        options: Options,
        networks: dict[str, str],
        *,
        url: str,
        secret: str,
        most_jobs: int,
        log: Callable[[str], None],
        changed: Callable[[Counts], None],
    ) -> None:
        """networks: values of WeightsFile by the providerData of the registered engines. url: of the broker.
        most_jobs: concurrent ones. changed: called with the counts after each change."""
        self._pool = pool
        share = max(LEAST_MB, tree_megabytes(options) // most_jobs)
        cache = max(1, cache_megabytes(options) // most_jobs)
        self._options = options.changed(
            chess960=True, smart_pruning_factor=0.0, tree_memory=share, hash=cache
        )
        self._networks = networks
        self._url, self._secret = url, secret
        self._most = most_jobs
        self._log, self._changed = log, changed
        self._lock = threading.Lock()
        self._counts = Counts()
        self._sessions: dict[tuple[str, str], BoardTab] = {}
        self._places = threading.Semaphore(most_jobs)
        # More jobs than searches, because a job may replace a running one.
        self._room = threading.Semaphore(4 * most_jobs)
        self._ended = threading.Event()
        self._threads: set[threading.Thread] = set()

    def run(self) -> None:
        """Poll for jobs until `close`, with growing pauses after failures."""
        pause = FIRST_PAUSE_S
        while not self._ended.is_set():
            self._room.acquire()
            begun = perf_counter()
            try:
                job = poll(self._url, self._secret)
                pause = FIRST_PAUSE_S
            except Exception as error:  # An odd answer ends nothing but itself, whatever it is.
                self._room.release()
                self._log(f"no job can be fetched: {reason(error)}; next attempt in {pause:g} s")
                self._ended.wait(pause)
                pause = min(LONGEST_PAUSE_S, 2 * pause)
                continue
            if job is None or self._ended.is_set():
                self._room.release()
                self._ended.wait(begun + LEAST_IDLE_S - perf_counter())
                continue
            thread = threading.Thread(target=self._serve, args=(job,), name="lichess-job", daemon=True)
            with self._lock:
                self._threads.add(thread)
            thread.start()
            self._ended.wait(begun + LEAST_S - perf_counter())

    def close(self) -> None:
        """Let the running searches send their best moves, and fetch no further jobs."""
        self._ended.set()
        with self._lock:
            threads = list(self._threads)
            for session in self._sessions.values():
                session.end()
        end = perf_counter() + END_S
        for thread in threads:
            thread.join(max(0.0, end - perf_counter()))

    # -- threads of jobs ---------------------------------------------------------------------------------

    def _serve(self, job: BoardJob) -> None:
        self._count(running=1)
        try:
            self._answer(job)
        except Exception as error:  # The other jobs go on, whatever it is.
            self._count(failed=1)
            self._log(f"job {job.identity}: {reason(error)}")
        finally:
            self._count(running=-1)
            with self._lock:
                self._threads.discard(threading.current_thread())
            self._room.release()

    def _answer(self, job: BoardJob) -> None:
        """Search and answer a job. Raises ERRORS, NoEvaluatorError and PipelineError."""
        try:
            weights, game = self._start(job)
        except Exception:
            refuse(self._url, job.identity)
            raise
        session = self._session(job)
        try:
            with session.turn, self._places:  # The job that it replaces has ended.
                stop = session.stop = threading.Event()
                with self._lock:
                    newer = session.waiting > 1 or self._ended.is_set()
                if newer:
                    stop.set()
                session.player.options = self._options.changed(weights=weights, multipv=job.multipv)
                complete = answer(self._url, job.identity, self._lines(job, game, session.player, stop))
        finally:
            with self._lock:
                session.waiting -= 1
        if complete and not stop.is_set():
            self._count(answered=1)
        else:
            self._count(left=1)

    def _start(self, job: BoardJob) -> tuple[str, Game]:
        """Return the network and the position of a job. Raises ValueError."""
        weights = self._networks.get(job.network)
        if weights is None:
            raise ValueError(
                f"the engine {job.engine} has a network that is not offered: {job.network[:60]!a}"
            )
        game = Game(None if job.fen == "startpos" else job.fen, True)
        for move in job.moves:
            game.push_uci(move)
        return weights, game

    def _session(self, job: BoardJob) -> BoardTab:
        """Return the session of a job, whose running job ends. The oldest end if there are many."""
        key = job.engine, job.session
        with self._lock:
            session = self._sessions.pop(key, None) or BoardTab(self._pool.player(self._options))
            self._sessions[key] = session
            session.waiting += 1
            session.end()
            for old in [each for each, kept in self._sessions.items() if not kept.waiting]:
                if len(self._sessions) > 2 * self._most:
                    self._sessions.pop(old).player.close()
            return session

    def _lines(self, job: BoardJob, game: Game, player: PoolPlayer, stop: threading.Event) -> Iterator[str]:
        """Yield the output of a search every EVERY_S seconds, whether or not the evaluator answers. Leaving
        the loop ends the search."""
        output: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        wanted = min(job.multipv, len(game.legal_moves()))

        def look(search: Search, _: object) -> float:
            report = search.report()
            complete = sum(bool(line.visits or line.prior) for line in report.lines) >= wanted
            if complete:
                output.put(report)
            return perf_counter() + (EVERY_S if complete else FIRST_S)

        kind, value = job.limit
        # A limit in time is kept here: an infinite search keeps its tree also when the game steps back.
        limits = Limits(nodes=value) if kind == "nodes" else Limits(depth=value) if kind == "depth" else None
        end = perf_counter() + value / 1000 if kind == "movetime" and value < ENDLESS_MS else None
        future = player.search(game, limits or Limits(infinite=True), observer=Observer(FIRST_S, look))
        future.add_done_callback(lambda _: output.put(None))
        if stop.is_set():  # `end` may have come before the search.
            player.stop()
        try:
            while True:
                try:
                    report = output.get(timeout=None if end is None else max(0.0, end - perf_counter()))
                except queue.Empty:
                    player.stop()
                    end = None
                    continue
                if report is None:
                    break
                yield info_lines(report, player.options)
            last = future.result()
            if last.lines:
                yield info_lines(last, player.options)
            yield best_move_line(last)
        finally:
            player.stop()
            if not future.done():
                future.exception(timeout=60)

    def _count(self, *, running: int = 0, answered: int = 0, left: int = 0, failed: int = 0) -> None:
        with self._lock:
            counts = self._counts
            self._counts = Counts(
                counts.running + running,
                counts.answered + answered,
                counts.left + left,
                counts.failed + failed,
            )
            counts = self._counts
        self._changed(counts)

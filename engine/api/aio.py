# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine for asyncio.

    async with AsyncEngine() as engine:
        await engine.position(moves=["e2e4", "e7e5"])
        async for analysis in engine.analyse(nodes=10_000, multipv=3):
            print(analysis)

One worker thread per engine owns an `Engine` and runs its calls one after another. The event loop never
waits for the search.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from engine.api.engine import Analysis, Engine, EngineClosedError, Move, PlayResult, limits_of, options_of
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits

T = TypeVar("T")

POLL_SECONDS = 0.1
"""Time between two checks whether a start was cancelled."""


class AsyncEngine:
    """The `Engine` for asyncio: same arguments, results and errors.

    Use it in `async with`, or await `open` and `close`; `open` raises the errors of Engine's constructor.
    Calls run one after another: a call waits for the running search. A call that is cancelled stops its
    search at once. Only `stop` may be called from other threads. `log` is called from other threads.
    """

    def __init__(
        self,
        weights: str | None = None,
        backend: str | None = None,
        evaluator: str | None = None,
        *,
        log: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> None:
        options_of(weights, backend, evaluator, options)  # Raises before a thread starts.
        self._abandoned = threading.Event()
        self._make: Callable[[], Engine] = partial(
            _Engine, self._abandoned, weights, backend, evaluator, log=log, **options
        )
        self._worker = ThreadPoolExecutor(1, "engine")
        self._engine: Engine | None = None
        self._controls: set[SearchControl] = set()
        """Of all searches that run or wait for the worker."""
        self._closed: Future[None] | None = None
        """The closing of the engine, once it has begun."""

    # -- opening and closing -----------------------------------------------------------------------------

    async def open(self) -> Self:
        """Start the evaluator, or connect to it, and return the engine once a search can start.

        Raises EvaluatorError. A failed or cancelled start closes the engine.
        """
        if self._closed is not None or self._engine is not None:
            raise EngineClosedError("an engine is opened once; make another one")
        try:
            await asyncio.wrap_future(self._worker.submit(self._start))
        except BaseException:
            self._abandoned.set()
            self._begin_to_close()
            raise
        return self

    async def close(self) -> None:
        """Stop the search and the evaluator. Idempotent."""
        # Shielded: cancelling this call must not leave the evaluator running.
        await asyncio.shield(asyncio.wrap_future(self._begin_to_close()))

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _start(self) -> None:
        self._engine = self._make()

    def _begin_to_close(self) -> Future[None]:
        if self._closed is None:
            self._closed = self._worker.submit(self._finish)
            self._worker.shutdown(wait=False)
        self.stop()
        return self._closed

    def _finish(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _opened(self) -> Engine:
        engine = self._engine
        if self._closed is not None:
            raise EngineClosedError("the engine is closed")
        if engine is None:
            raise EngineClosedError("the engine is not open yet: use `async with`, or await `open`")
        return engine

    # -- position ----------------------------------------------------------------------------------------

    async def position(
        self, fen: str | None = None, moves: Sequence[Move] = (), *, chess960: bool = False
    ) -> None:
        """Set the position; see `Engine.position`."""
        engine = self._opened()
        await self._call(lambda: engine.position(fen, moves, chess960=chess960))

    @property
    def fen(self) -> str:
        """The current position."""
        return self._opened().fen

    @property
    def legal_moves(self) -> list[str]:
        """The legal moves of the position, in UCI notation."""
        return self._opened().legal_moves

    async def new_game(self) -> None:
        """Clear the tree and return to the initial position."""
        await self._call(self._opened().new_game)

    async def evaluator_address(self) -> str:
        """Return the address of this engine's evaluator; see `Engine.evaluator_address`."""
        engine = self._opened()
        return await self._call(lambda: engine.evaluator_address)

    # -- search ------------------------------------------------------------------------------------------

    async def play(
        self,
        *,
        nodes: int | None = None,
        movetime: float | None = None,
        depth: int | None = None,
        mate: int | None = None,
        clock: Clock | None = None,
        search_moves: Sequence[Move] = (),
    ) -> PlayResult:
        """Choose a move within at least one limit; see `Engine.play`."""
        engine, control = self._opened(), SearchControl()
        limits = limits_of(nodes, movetime, depth, mate, clock, search_moves)
        return await self._call(lambda: engine._play(limits, control), control)

    def analyse(
        self,
        *,
        nodes: int | None = None,
        movetime: float | None = None,
        depth: int | None = None,
        mate: int | None = None,
        multipv: int = 1,
        search_moves: Sequence[Move] = (),
    ) -> AsyncAnalysis:
        """Search the position and return its best `multipv` lines, as the search runs or at its end.

        Each loop over the result, and each await of it, is one search:

            async for analysis in engine.analyse(multipv=3):
                if analysis.nodes > 10_000:
                    break

        A loop receives an Analysis a few times per second, and at the end the final one. Leaving the loop
        ends the search. Without a limit the loop ends with `stop`. An await returns the final Analysis, and
        needs a limit. Raises the same as `Engine.analyse`.
        """
        limits = limits_of(nodes, movetime, depth, mate, None, search_moves, may_be_infinite=True)
        return AsyncAnalysis(self, limits, multipv)

    def stop(self) -> None:
        """Stop the running search, and those that wait for it. They return their results so far."""
        for control in tuple(self._controls):
            control.stop()

    def _submit(self, work: Callable[[], T], control: SearchControl | None = None) -> Future[T]:
        """Let the worker do it. control: of the search that `work` runs."""
        future = self._worker.submit(work)
        if control is not None:
            self._controls.add(control)
            future.add_done_callback(lambda _: self._controls.discard(control))
        return future

    async def _call(self, work: Callable[[], T], control: SearchControl | None = None) -> T:
        try:
            return await asyncio.wrap_future(self._submit(work, control))
        except asyncio.CancelledError:
            if control is not None:
                control.stop()
            raise


class AsyncAnalysis:
    """An analysis that starts when it is iterated or awaited; see `AsyncEngine.analyse`."""

    def __init__(self, engine: AsyncEngine, limits: Limits, multipv: int) -> None:
        self._engine = engine
        self._limits = limits
        self._multipv = multipv

    def __await__(self) -> Generator[Any, None, Analysis]:
        return self._final().__await__()

    def __aiter__(self) -> AsyncIterator[Analysis]:
        return _Reports(self)

    async def _final(self) -> Analysis:
        if self._limits.infinite:
            raise ValueError("say how long to search: nodes, movetime, depth or mate")
        control = SearchControl()
        return await self._engine._call(self._work(control), control)

    def _work(
        self, control: SearchControl, on_report: Callable[[Analysis], None] | None = None
    ) -> Callable[[], Analysis]:
        engine, limits, multipv = self._engine._opened(), self._limits, self._multipv
        return lambda: engine._analyse(limits, multipv, on_report, control)


class _Reports(AsyncIterator[Analysis]):
    """The reports of one search, which ends when nobody refers to this iterator any more."""

    def __init__(self, analysis: AsyncAnalysis) -> None:
        self._analysis = analysis
        self._control = SearchControl()
        self._queue: asyncio.Queue[Analysis | None] = asyncio.Queue()
        self._search: Future[Analysis] | None = None
        self._ended = False

    async def __anext__(self) -> Analysis:
        if self._ended:
            raise StopAsyncIteration
        search = self._search = self._search or self._begin()
        try:
            analysis = await self._queue.get()
        except asyncio.CancelledError:
            self._control.stop()
            raise
        if analysis is not None:
            return analysis
        self._ended = True
        return search.result()

    def _begin(self) -> Future[Analysis]:
        # The worker must not refer to this iterator, which would keep it alive.
        loop, queue = asyncio.get_running_loop(), self._queue

        def post(analysis: Analysis | None) -> None:
            with suppress(RuntimeError):  # The loop is closed: nobody reads the queue.
                loop.call_soon_threadsafe(queue.put_nowait, analysis)

        analysis = self._analysis
        search = analysis._engine._submit(analysis._work(self._control, post), self._control)
        search.add_done_callback(lambda _: post(None))
        return search

    def __del__(self) -> None:
        self._control.stop()


class _Engine(Engine):
    """An engine whose start ends early if `abandoned` is set."""

    def __init__(self, abandoned: threading.Event, *arguments: Any, **options: Any) -> None:
        self._abandoned = abandoned
        super().__init__(*arguments, **options)

    def _await_evaluator(self) -> None:
        while not self._opened().ready(POLL_SECONDS):
            if self._abandoned.is_set():
                raise EngineClosedError("the engine was closed while it started")

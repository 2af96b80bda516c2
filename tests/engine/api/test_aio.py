# SPDX-License-Identifier: GPL-3.0-or-later
"""AsyncEngine: the Python API for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import psutil
import pytest

from engine import Analysis, AsyncEngine, Engine
from engine.api import EngineClosedError, EvaluatorError, PositionError
from engine.options import OptionError

T = TypeVar("T")

HANG_SECONDS = 240
"""Limit of a test, which would otherwise wait indefinitely."""

ENDLESS = 10**9
"""Nodes that a search does not reach within a test."""


@pytest.fixture(scope="module")
def evaluator() -> Iterator[str]:
    with Engine(backend="random") as engine:
        yield engine.evaluator_address


@pytest.fixture
def run(evaluator: str) -> Callable[[Callable[[AsyncEngine], Awaitable[T]]], T]:
    """Runs a test with an open engine in an event loop."""

    def with_engine(test: Callable[[AsyncEngine], Awaitable[T]]) -> T:
        async def main() -> T:
            async with asyncio.timeout(HANG_SECONDS), AsyncEngine(evaluator=evaluator) as engine:
                return await test(engine)

        return asyncio.run(main())

    return with_engine


Run = Callable[[Callable[[AsyncEngine], Awaitable[None]]], None]


async def assert_usable(engine: AsyncEngine) -> None:
    result = await engine.play(nodes=10)
    assert result.best_move in engine.legal_moves


async def begin(engine: AsyncEngine) -> asyncio.Task[Analysis]:
    """Start an analysis in a task and let it run for a moment."""

    async def analyse() -> Analysis:
        return await engine.analyse(nodes=ENDLESS)

    task = asyncio.create_task(analyse())
    await asyncio.sleep(0.1)
    assert not task.done()
    return task


def test_play_returns_a_legal_move(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        await engine.position(moves=["e2e4", "e7e5"])
        result = await engine.play(nodes=200)
        assert result.best_move in engine.legal_moves
        assert result.info.nodes >= 190
        await engine.new_game()
        assert engine.fen.startswith("rnbqkbnr/pppppppp")

    run(test)


def test_a_loop_ends_with_the_final_analysis(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        seen = [analysis async for analysis in engine.analyse(nodes=100_000, multipv=3)]
        assert [analysis.nodes for analysis in seen] == sorted(analysis.nodes for analysis in seen)
        assert seen[-1].nodes >= 100_000
        assert len(seen[-1].lines) == 3
        assert len(seen) > 1

    run(test)


def test_an_await_returns_the_final_analysis(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        analysis = await engine.analyse(nodes=500, multipv=2)
        assert analysis.nodes >= 500
        assert len(analysis.lines) == 2

    run(test)


def test_leaving_the_loop_ends_the_search(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        async for analysis in engine.analyse():
            assert analysis.nodes > 0
            break
        await assert_usable(engine)

    run(test)


def test_an_error_in_the_loop_ends_the_search(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        with pytest.raises(ZeroDivisionError):
            async for _ in engine.analyse():
                raise ZeroDivisionError
        await assert_usable(engine)

    run(test)


def test_cancellation_ends_a_loop(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        async def loop() -> None:
            async for _ in engine.analyse():
                pass

        task = asyncio.create_task(loop())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await assert_usable(engine)

    run(test)


def test_cancellation_ends_an_awaited_search(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        task = await begin(engine)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.play(nodes=ENDLESS), 0.1)
        await assert_usable(engine)

    run(test)


def test_a_call_that_is_cancelled_before_its_turn_does_nothing(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        search = await begin(engine)
        position = asyncio.create_task(engine.position(moves=["e2e4"]))
        await asyncio.sleep(0)
        position.cancel()
        engine.stop()
        await search
        await assert_usable(engine)
        assert engine.fen.startswith("rnbqkbnr/pppppppp/8/8/8/8")

    run(test)


def test_stop_returns_the_result_so_far(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        for stop in (engine.stop, lambda: threading.Thread(target=engine.stop).start()):
            task = await begin(engine)
            stop()
            assert 0 < (await task).nodes < ENDLESS
        asyncio.get_running_loop().call_later(0.3, engine.stop)
        *_, last = [analysis async for analysis in engine.analyse()]
        assert last.nodes > 0
        await assert_usable(engine)

    run(test)


def test_stop_ends_searches_that_have_not_started(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        running = await begin(engine)
        waiting = asyncio.create_task(engine.play(nodes=ENDLESS))
        await asyncio.sleep(0)
        engine.stop()
        assert (await running).best_move in engine.legal_moves
        assert (await waiting).best_move in engine.legal_moves

    run(test)


def test_the_event_loop_runs_during_a_search(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        search = await begin(engine)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not search.done()
        engine.stop()
        await search

    run(test)


def test_several_engines_share_an_evaluator(evaluator: str) -> None:
    async def one(move: str) -> str | None:
        async with AsyncEngine(evaluator=evaluator) as engine:
            await engine.position(moves=[move])
            assert await engine.evaluator_address() == evaluator
            analyses = [analysis async for analysis in engine.analyse(nodes=50_000)]
            assert analyses[-1].best_move in engine.legal_moves
            return analyses[-1].best_move

    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS):
            assert None not in await asyncio.gather(*map(one, ("e2e4", "d2d4", "c2c4")))

    asyncio.run(main())


def test_errors_are_those_of_engine_and_leave_it_usable(run: Run) -> None:
    async def test(engine: AsyncEngine) -> None:
        with pytest.raises(PositionError, match="move 1"):
            await engine.position(moves=["e2e5"])
        with pytest.raises(PositionError, match="search_moves"):
            await engine.play(nodes=1, search_moves=["e2e5"])
        with pytest.raises(ValueError, match="say how long"):
            await engine.play()
        with pytest.raises(ValueError, match="say how long"):
            await engine.analyse()
        with pytest.raises(OptionError, match="MultiPV"):
            await engine.analyse(nodes=1, multipv=0)
        with pytest.raises(PositionError, match="search_moves"):
            async for _ in engine.analyse(nodes=1, search_moves=["e2e5"]):
                pass
        await assert_usable(engine)

    run(test)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(OptionError, match="multi_pv"):
        AsyncEngine(multi_pv=3)


def test_open_raises_if_there_is_no_evaluator() -> None:
    async def main() -> None:
        with pytest.raises(EvaluatorError, match=r"127\.0\.0\.1:9"):
            async with AsyncEngine(evaluator="tcp://127.0.0.1:9"):
                pass

    asyncio.run(main())


def test_an_engine_is_usable_between_open_and_close(evaluator: str) -> None:
    async def main() -> None:
        engine = AsyncEngine(evaluator=evaluator)
        with pytest.raises(EngineClosedError, match="not open yet"):
            await engine.play(nodes=1)
        await engine.open()
        await assert_usable(engine)
        await engine.close()
        await engine.close()
        with pytest.raises(EngineClosedError, match="closed"):
            await engine.play(nodes=1)
        with pytest.raises(EngineClosedError, match="opened once"):
            await engine.open()

    asyncio.run(main())


def test_close_ends_a_running_search(evaluator: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS):
            async with AsyncEngine(evaluator=evaluator) as engine:
                task = await begin(engine)
            assert 0 < (await task).nodes < ENDLESS

    asyncio.run(main())


@pytest.mark.integration
def test_a_cancelled_start_ends_the_evaluator() -> None:
    before = set(psutil.Process().children())

    async def main() -> None:
        engine = AsyncEngine(backend="random")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.open(), 0.05)
        await engine.close()

    asyncio.run(main())
    assert set(psutil.Process().children()) <= before

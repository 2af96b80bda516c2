# SPDX-License-Identifier: GPL-3.0-or-later
"""Many searches on one evaluator: engine.search.pool, with a real evaluator process."""

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import Future, wait
from functools import partial
from random import Random
from threading import Event
from time import perf_counter
from typing import Any

import psutil
import pytest

from engine._core import Game, Tree
from engine.evaluation.send.pooled_pipeline import PooledPipeline
from engine.evaluation.spread.upstream import Upstream
from engine.options import Options
from engine.search.limits import Clock, Limits
from engine.search.loop.driver import Search
from engine.search.loop.search import Observer
from engine.search.pool import PoolPlayer, SearchPool, answer
from protocol.batch import PositionBatch
from tests.engine.evaluation.evaluators import shared_evaluator
from tests.paths import TABLES
from tests.programs import suspend

pytestmark = pytest.mark.integration

RANDOM = Options(backend="random", hash=1, tree_memory=16, smart_pruning_factor=0.0)


@pytest.fixture
def pool() -> Iterator[SearchPool]:
    with shared_evaluator(), SearchPool() as made:
        yield made


@pytest.fixture
def own_pool() -> Iterator[SearchPool]:
    """A pool with an evaluator of its own."""
    with SearchPool() as made:
        yield made


def play_games(pool: SearchPool, players: list[PoolPlayer], plies: int, limits: Limits) -> list[Game]:
    """One game for each player, all at the same time, each against itself."""
    games = [Game() for _ in players]
    for _ in range(plies):
        futures = [
            player.search(game, limits)
            for player, game in zip(players, games, strict=True)
            if game.result()[0] == "undecided"
        ]
        _, not_done = wait(futures, timeout=60)
        assert not not_done
        live = [game for game in games if game.result()[0] == "undecided"]
        for future, game in zip(futures, live, strict=True):
            move = future.result().best_move
            assert move is not None
            game.push_uci(move)
    return games


def test_games_share_one_evaluator_and_their_batches_are_merged(own_pool: SearchPool) -> None:
    players = [own_pool.player(RANDOM) for _ in range(24)]
    games = play_games(own_pool, players, plies=6, limits=Limits(nodes=60))
    assert all(len(game.moves()) == 6 for game in games)
    assert len(own_pool.evaluator_pids()) == 1
    statistics = own_pool.statistics()
    assert statistics.searches == 24 * 6
    assert statistics.evaluations > 24 * 6 * 30
    assert statistics.positions_per_second > 0


def test_an_owner_of_few_searches_does_not_wait_for_those_of_another(pool: SearchPool) -> None:
    order: list[str] = []
    futures = []
    for owner in ["many"] * 32 + ["few"] * 4:
        player = pool.player(RANDOM)
        player.owner = owner
        futures.append(player.search(Game(), Limits(nodes=400)))
        futures[-1].add_done_callback(partial(lambda owner, _: order.append(owner), owner))
    assert not wait(futures, timeout=120).not_done
    assert order[:4] == ["few"] * 4, "each search had as many turns, so those of one owner ended first"


def test_players_share_tablebases_which_are_announced_once() -> None:
    said: list[str] = []
    options = RANDOM.changed(syzygy_path=str(TABLES))
    with SearchPool(log=said.append) as pool:
        players = [pool.player(options) for _ in range(4)]
        game = Game("8/8/4k3/8/8/3K4/4P3/8 w - - 0 1")
        for future in [player.search(game, Limits(nodes=30)) for player in players]:
            report = future.result(timeout=60)
            assert report.best_move in ("d3d4", "d3e4")
            assert report.tablebase_hits > 0
            assert report.lines[0].tablebase == 1
    assert [text for text in said if "Syzygy" in text] == [
        "found 35 Syzygy tables of up to 4 men, 35 with distances (.rtbz)"
    ]


def test_a_pool_leaves_room_for_the_searches_of_other_processes(pool: SearchPool) -> None:
    with SearchPool(pools=256) as one_of_many:
        means = []
        for each in (pool, one_of_many):
            each.player(RANDOM).search(Game(), Limits(nodes=20_000)).result(timeout=60)
            means.append(each.statistics().mean_batch)
    assert means[1] < means[0] / 2


def test_a_lone_search_sends_each_batch_by_itself(pool: SearchPool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    submit = Upstream.submit

    def recorded(upstream: Upstream, batch: PositionBatch, sent: Any) -> bool:
        sizes.append(len(batch))
        return submit(upstream, batch, sent)

    monkeypatch.setattr(Upstream, "submit", recorded)
    monkeypatch.setattr(PooledPipeline, "lend", lambda _: None)
    options = RANDOM.changed(minibatch_size=8, batches_in_flight=2)
    report = pool.player(options).search(Game(), Limits(nodes=2000)).result(timeout=60)
    assert sum(sizes) == report.evaluations
    assert max(sizes) == 8, "joined, both return together, and the device idles while the search collects"


def test_a_pooled_search_finds_what_a_search_of_its_own_finds(pool: SearchPool) -> None:
    alone = SearchPool()
    fen = "r1bqk2r/pppp1ppp/2n2n2/2b1p3/2B1P3/2N2N2/PPPP1PPP/R1BQK2R w KQkq - 6 5"
    options = RANDOM.changed(minibatch_size=1, batches_in_flight=1)
    with alone:
        expected = alone.player(options).search(Game(fen), Limits(nodes=300)).result(60)
    others = [pool.player(options).search(Game(), Limits(nodes=200)) for _ in range(5)]
    found = pool.player(options).search(Game(fen), Limits(nodes=300)).result(60)
    assert found.lines[0] == expected.lines[0]
    assert found.nodes == 300
    for other in others:
        assert other.result(60).nodes == 200


def test_search_ends_before_a_visit_when_its_clock_ran_out(pool: SearchPool) -> None:
    clock = Limits(clock=Clock(white_ms=2000, black_ms=2000))
    report = pool.player(RANDOM).search(Game(), clock, clock_started=perf_counter() - 3600).result(60)
    assert report.best_move is not None
    assert report.nodes == 0


def test_a_search_can_be_stopped(pool: SearchPool) -> None:
    player = pool.player(RANDOM)
    player.search(Game(), Limits(nodes=10)).result(60)
    future = player.search(Game(), Limits(infinite=True))
    with pytest.raises(RuntimeError, match="searching already"):
        player.search(Game(), Limits(nodes=1))
    player.stop()
    assert future.result(60).best_move is not None


def test_visits_that_need_no_evaluation_count_towards_the_limit(pool: SearchPool) -> None:
    fen = "8/8/8/8/4k3/8/4p3/4K3 w - - 90 100"  # The game is over after a few plies of most lines.
    futures = [pool.player(RANDOM).search(Game(fen), Limits(nodes=nodes)) for nodes in (50, 51, 52, 53)]
    assert [future.result(60).nodes for future in futures] == [50, 51, 52, 53]


async def test_a_waiting_task_that_is_cancelled_leaves_the_pool_alone(pool: SearchPool) -> None:
    player = pool.player(RANDOM)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.wrap_future(player.search(Game(), Limits(infinite=True))), 0.2)
    player.stop()
    assert pool.player(RANDOM).search(Game(), Limits(nodes=20)).result(60).nodes == 20


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be suspended by a signal")
def test_evaluation_leaves_the_pool_when_it_is_cancelled(own_pool: SearchPool) -> None:
    own_pool.evaluate([Game()], RANDOM).result(60)
    evaluator = suspend(*map(psutil.Process, own_pool.evaluator_pids()))
    waiting = [own_pool.evaluate([Game()] * 100, RANDOM) for _ in range(20)]
    random = Random(1)
    for future in random.sample(waiting, 15):
        future.cancel()
    active: Future[int] = Future()
    own_pool.submit(lambda: active.set_result(len(own_pool._loop.active)))
    assert active.result(60) == 5
    evaluator.resume()
    for future in random.sample(waiting, 20):  # While answers come.
        future.cancel()
    assert own_pool.evaluate([Game()], RANDOM).result(60)
    settled: Future[int] = Future()
    own_pool.submit(lambda: settled.set_result(len(own_pool._loop.active)))
    assert settled.result(60) == 0


def test_prepare_and_inspect_see_the_tree(pool: SearchPool) -> None:
    visits: list[int] = []
    player = pool.player(RANDOM)
    player.search(
        Game(),
        Limits(nodes=50),
        prepare=lambda tree: tree.add_root_noise(0.25, 0.3, 1),
        inspect=lambda tree: visits.append(sum(child.visits for child in tree.children())),
    ).result(60)
    assert visits == [49]


def test_a_fault_in_one_search_does_not_end_the_others(pool: SearchPool) -> None:
    def fail(tree: Tree) -> None:
        raise ZeroDivisionError

    bad = pool.player(RANDOM).search(Game(), Limits(nodes=50), prepare=fail)
    good = pool.player(RANDOM).search(Game(), Limits(nodes=50))
    with pytest.raises(ZeroDivisionError):
        bad.result(60)
    assert good.result(60).nodes == 50


def test_closing_ends_searches_and_evaluators() -> None:
    pool = SearchPool()
    player = pool.player(RANDOM)
    player.search(Game(), Limits(nodes=10)).result(60)
    evaluators = [psutil.Process(pid) for pid in pool.evaluator_pids()]
    assert evaluators
    future = player.search(Game(), Limits(infinite=True))
    pool.close()
    assert future.done()
    _, alive = psutil.wait_procs(evaluators, timeout=60)
    assert not alive
    with pytest.raises(RuntimeError, match="closed"):
        pool.player(RANDOM)


def test_lone_search_with_nodes_continues_when_another_joins(pool: SearchPool) -> None:
    """It has no clock and no observer, so only an answer advances it, and none may be due."""
    first, second = pool.player(RANDOM), pool.player(RANDOM)
    began = Event()
    for _ in range(20):
        began.clear()
        first.clear()
        future = first.search(Game(), Limits(nodes=1500), prepare=lambda _tree: began.set())
        assert began.wait(60)
        other = second.search(Game(), Limits(infinite=True))
        assert future.result(60).nodes >= 1500
        second.stop()
        other.result(60)


@pytest.mark.parametrize("fen", [None, "8/8/4k3/8/8/3K4/8/8 w - - 0 1"])
def test_an_observer_sees_a_search_as_it_continues(pool: SearchPool, fen: str | None) -> None:
    """Of bare kings, every line is over: no answer of the evaluator wakes the pool any more."""
    seen: list[tuple[int, int]] = []
    enough = Event()

    def look(search: Search, tree: Tree) -> float:
        seen.append((search.report().nodes, tree.root_info().visits))
        if len(seen) == 3:
            enough.set()
        return perf_counter() + 0.01

    player = pool.player(RANDOM)
    future = player.search(Game(fen), Limits(infinite=True), observer=Observer(0.01, look))
    assert enough.wait(60)
    player.stop()
    assert future.result(60).nodes >= seen[-1][0]
    assert all(0 <= nodes <= visits for nodes, visits in seen)
    assert seen == sorted(seen)


def test_a_cancelled_coroutine_is_closed_and_an_error_is_its_result(pool: SearchPool) -> None:
    begun, closed = Event(), Event()

    async def waits() -> None:
        begun.set()
        try:
            await answer(Future[None]())
        finally:
            closed.set()

    async def fails() -> None:
        raise ValueError("no move")

    waiting = pool.drive(waits())
    assert begun.wait(60)
    assert waiting.cancel()
    assert closed.wait(60)
    with pytest.raises(ValueError, match="no move"):
        pool.drive(fails()).result(timeout=60)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches of many searches in few requests, with a real evaluator process."""

from collections.abc import Iterator

import psutil
import pytest

from engine._core import Game
from engine.evaluation.link import health
from engine.evaluation.send.pooled_pipeline import PooledPipeline
from engine.evaluation.spread.routing import had_better_wait
from engine.options import Options
from engine.search.limits import Limits
from engine.search.loop import loop
from engine.search.pool import SearchPool
from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from protocol.batch import PositionBatch
from protocol.client import EvaluatorClient
from protocol.wire.codec import check_batch

pytestmark = pytest.mark.integration

RANDOM = Options(backend="random", hash=1, tree_memory=16, smart_pruning_factor=0.0)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[PositionBatch]:
    """What is sent."""
    sent: list[PositionBatch] = []
    submit = EvaluatorClient.submit

    def remember(client: EvaluatorClient, batch: PositionBatch, **arguments: object) -> int:
        check_batch(batch)  # Now: the batch of a single search is its own memory, filled again later.
        sent.append(batch)
        return submit(client, batch, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(EvaluatorClient, "submit", remember)
    monkeypatch.setattr(PooledPipeline, "lend", lambda _: None)
    return sent


@pytest.fixture
def pool() -> Iterator[SearchPool]:
    with SearchPool() as made:
        yield made


def test_positions_of_many_searches_travel_together(pool: SearchPool, requests: list[PositionBatch]) -> None:
    futures = [pool.player(RANDOM).search(Game(), Limits(nodes=200)) for _ in range(48)]
    reports = [future.result(60) for future in futures]
    assert all(report.nodes == 200 for report in reports)
    positions, batches = sum(len(batch) for batch in requests), sum(report.batches for report in reports)
    assert positions == sum(report.evaluations for report in reports)
    assert positions / len(requests) > 2.5 * positions / batches


@pytest.mark.parametrize(
    ("waiting", "in_flight", "full", "waits"),
    [
        (5, 0, 64, False),  # the evaluator has nothing to do
        (60, 192, 64, True),  # it has plenty
        (70, 60, 1056, False),  # half of all there are: two requests take turns
        (40, 60, 1056, True),
        (130, 380, 1056, False),  # worth a request of its own
        (130, 900, 1056, True),  # a quarter of all there are is more
        (520, 3000, 1056, False),  # large enough
        (10, 30, 16, True),
        (16, 30, 16, False),  # full
    ],
)
def test_positions_wait_for_others_while_the_evaluator_has_work(
    waiting: int, in_flight: int, full: int, waits: bool
) -> None:
    assert had_better_wait(waiting, in_flight, full) == waits


def test_a_search_that_is_stopped_takes_nothing_from_the_others(pool: SearchPool) -> None:
    players = [pool.player(RANDOM) for _ in range(8)]
    players[0].search(Game(), Limits(nodes=5)).result(60)
    futures = [player.search(Game(), Limits(nodes=3000)) for player in players]
    for player in players[::2]:
        player.stop()
    assert all(future.result(60).best_move is not None for future in futures)
    assert all(future.result(60).nodes == 3000 for future in futures[1::2])
    again = [player.search(Game(), Limits(nodes=300)) for player in players]
    assert all(future.result(60).nodes >= 300 for future in again)


def test_searches_of_several_networks_are_answered_by_their_own(
    pool: SearchPool, requests: list[PositionBatch], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("networks")
    options = []
    for seed in (1, 2):
        path = folder / f"{seed}.pb.gz"
        write_network(random_network("tiny-attention", seed=seed), path)
        options.append(
            RANDOM.changed(backend="onnx", weights=str(path), minibatch_size=1, batches_in_flight=1)
        )
    alone = []
    for each in options:
        with SearchPool() as own:
            alone.append(own.player(each).search(Game(), Limits(nodes=60)).result(120))
    futures = [pool.player(each).search(Game(), Limits(nodes=60)) for each in options * 4]
    together = [future.result(120) for future in futures]
    assert len(pool.evaluator_pids()) == 1
    assert alone[0].lines != alone[1].lines
    for index, report in enumerate(together):
        assert report.lines[0].moves[0] == alone[index % 2].lines[0].moves[0]


def test_an_evaluator_that_hangs_is_replaced(pool: SearchPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(health, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(health, "PATIENCE_SECONDS", 0.5)
    player = pool.player(RANDOM)
    player.search(Game(), Limits(nodes=5)).result(60)
    (pid,) = pool.evaluator_pids()
    evaluator = psutil.Process(pid)
    evaluator.suspend()
    future = player.search(Game(), Limits(nodes=4000))
    try:
        assert future.result(60).nodes >= 4000
    finally:
        if evaluator.is_running():
            evaluator.resume()
    assert pool.evaluator_pids() != [pid]

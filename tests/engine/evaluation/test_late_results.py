# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations that come after their search has ended, with a real evaluator process."""

from collections.abc import Iterator
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from engine._core import Batch, Game, Tree, evaluate_randomly
from engine.evaluation.errors import NetworkChangedError
from engine.evaluation.link.encoding import position_batch
from engine.evaluation.link.process import EvaluatorSettings
from engine.evaluation.send.pooled import PooledEvaluator
from engine.evaluation.send.pooled_pipeline import PooledPipeline
from engine.options import Options
from engine.search.loop.batching import BatchSizes
from protocol.batch import EvaluationBatch
from protocol.client import EvaluatorClient
from tests.engine.core.tree.search_helpers import new_tree
from tests.programs import suspend

KEY = ("", "", "")
RULE = BatchSizes(8).rule
WAIT_S = 60.0
WAIT_MS = 1000 * WAIT_S


@pytest.fixture
def evaluator() -> Iterator[PooledEvaluator[str]]:
    made: PooledEvaluator[str] = PooledEvaluator(
        EvaluatorSettings.of(Options(backend="random")), print, "play", spread=False
    )
    made.start()
    assert made.connections(WAIT_S)
    yield made
    made.close()


def begun(evaluator: PooledEvaluator[str], tree: Any) -> PooledPipeline[str]:
    """A pipeline with the root's position on its way."""
    (offer,) = evaluator.offers(KEY)
    pipeline = PooledPipeline("search", tree, evaluator, KEY, offer.identity, RULE)
    pipeline.alone = True
    batch = pipeline.take()
    assert tree.collect(batch, 8).evaluations == 1
    pipeline.submit(batch)
    assert pipeline.in_flight == 1
    return pipeline


def received(evaluator: PooledEvaluator[str]) -> set[str]:
    """The searches that are answered by the time that the evaluator owes nothing."""
    searches: set[str] = set()
    end = perf_counter() + WAIT_S
    while evaluator.awaited_clients and perf_counter() < end:
        searches |= evaluator.receive(WAIT_MS)
    assert not evaluator.awaited_clients
    return searches


@pytest.mark.integration
def test_late_result_is_found_by_the_next_search(evaluator: PooledEvaluator[str]) -> None:
    tree = new_tree(Game())
    begun(evaluator, tree).abandon()
    assert tree.root_info().batches_in_flight == 0
    assert not received(evaluator), "its search has ended"
    assert tree.root_info().visits == 0
    assert tree.collect(Batch(8), 8).cache_hits == 1


@pytest.mark.integration
@pytest.mark.parametrize(("same", "cancelled"), [(True, 1), (False, 0)])
def test_abandoned_request_is_cancelled_by_the_next_search(
    evaluator: PooledEvaluator[str], monkeypatch: pytest.MonkeyPatch, same: bool, cancelled: int
) -> None:
    cancels: list[int] = []
    monkeypatch.setattr(EvaluatorClient, "cancel", lambda _client, identity: cancels.append(identity))
    tree = new_tree(Game())
    pipeline = begun(evaluator, tree)
    evaluator.cancel_abandoned(tree)
    assert not cancels, "it is wanted"
    pipeline.abandon()
    evaluator.cancel_abandoned(tree if same else new_tree(Game()))
    assert len(cancels) == cancelled


@pytest.mark.integration
def test_lost_evaluator_owes_no_late_results(evaluator: PooledEvaluator[str]) -> None:
    tree, link = new_tree(Game()), evaluator.links[0]
    first = link.client
    assert first is not None and link.pid is not None
    process = suspend(psutil.Process(link.pid))
    begun(evaluator, tree).abandon()
    process.kill()
    link.lost(first, "killed")
    assert link.wait(WAIT_S) is not first
    pipeline = begun(evaluator, tree)
    assert received(evaluator) == {"search"}
    assert tree.root_info().visits == 1
    assert not pipeline.in_flight


def joined() -> tuple[Tree, PooledPipeline[str], Batch, EvaluationBatch]:
    """A pipeline that has given its batch to an evaluator which joins it with others, and the answer."""
    evaluator: Any = SimpleNamespace(add=lambda pipeline, batch: None)
    tree = new_tree(Game())
    pipeline = PooledPipeline("search", tree, evaluator, KEY, "hash", RULE)
    batch = pipeline.take()
    tree.collect(batch, 8)
    answer = EvaluationBatch(*evaluate_randomly(batch))
    pipeline.submit(batch)
    return tree, pipeline, batch, answer


def test_late_result_of_a_joined_batch_goes_to_the_cache() -> None:
    tree, pipeline, batch, answer = joined()
    pipeline.abandon()
    assert not pipeline.waits_for(batch)
    assert not pipeline.apply(batch, answer), "nobody waits for it"
    assert tree.root_info().visits == 0
    assert tree.collect(pipeline.take(), 8).cache_hits == 1


def test_failure_of_a_batch_stays_when_another_one_is_answered() -> None:
    _, pipeline, batch, answer = joined()
    failure = pipeline.failure = NetworkChangedError("the evaluator has another network now")
    assert pipeline.apply(batch, answer)
    assert pipeline.failure is failure


@pytest.mark.integration
def test_answered_requests_are_taken_before_the_next_is_sent(evaluator: PooledEvaluator[str]) -> None:
    """The evaluator answers in turn: an evaluation that was asked for earlier is there before this one."""
    tree, other = new_tree(Game()), new_tree(Game())
    begun(evaluator, tree).abandon()
    client = evaluator.links[0].client
    assert client is not None
    batch = Batch(8)
    other.collect(batch, 8)
    client.evaluate(position_batch(batch))
    evaluator.receive(0.0)
    assert not evaluator.awaited_clients
    assert tree.collect(Batch(8), 8).cache_hits == 1

# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations that come after their search has ended, with a real evaluator process."""

from __future__ import annotations

from typing import Any, cast

import psutil
import pytest

from engine._core import Batch, Game, evaluate_randomly
from engine.evaluation.balancing.pooled import PooledEvaluator, PooledPipeline
from engine.evaluation.connection.link import EvaluatorLink
from engine.evaluation.encoding import position_batch
from engine.evaluation.late_results import LateResults
from engine.evaluation.pipeline import RemotePipeline
from protocol.batch import EvaluationBatch
from protocol.client import Completed, EvaluatorClient
from protocol.errors import Cancelled
from tests.engine.core.tree.search_helpers import new_tree

PATIENCE_MS = 60_000


def begun(link: EvaluatorLink, late: LateResults, tree: Any) -> RemotePipeline:
    """A pipeline with the root's position on its way."""
    client = link.wait(PATIENCE_MS / 1000)
    assert client is not None
    pipeline = RemotePipeline(tree, link, capacity=8, network=client.network, late=late)
    batch = pipeline.take()
    assert tree.collect(batch, 8).evaluations == 1
    pipeline.submit(batch)
    return pipeline


def test_late_results_are_found_by_the_next_search(link: EvaluatorLink) -> None:
    late, tree = LateResults(), new_tree(Game())
    pipeline = begun(link, late, tree)
    pipeline.abandon()
    assert late.awaited_from(link.client)
    assert tree.root_info().batches_in_flight == 0
    while late.awaited_from(link.client):
        assert not pipeline.poll(PATIENCE_MS), "its search has ended"
    assert tree.root_info().visits == 0
    client = link.client
    assert client is not None
    following = RemotePipeline(tree, link, capacity=8, network=client.network, late=late)
    assert tree.collect(following.take(), 8).cache_hits == 1


def test_the_next_search_takes_what_has_come_before_it_asks(link: EvaluatorLink) -> None:
    """The evaluator answers in turn: an evaluation that was asked for earlier is there before this one."""
    late, tree, other = LateResults(), new_tree(Game()), new_tree(Game())
    pipeline = begun(link, late, tree)
    pipeline.abandon()
    client = link.client
    assert client is not None
    batch = Batch(8)
    other.collect(batch, 8)
    client.evaluate(position_batch(batch))
    following = RemotePipeline(tree, link, capacity=8, network=client.network, late=late)
    assert not late.awaited_from(client)
    assert tree.collect(following.take(), 8).cache_hits == 1


def test_queued_requests_are_withdrawn_when_the_next_search_begins() -> None:
    class Client:
        def __init__(self) -> None:
            self.cancelled: list[int] = []

        def cancel(self, identity: int) -> None:
            self.cancelled.append(identity)

    made = Client()
    client = cast("EvaluatorClient", made)
    late, tree, batch = LateResults(), new_tree(Game()), Batch(8)
    tree.collect(batch, 8)
    tree.abandon(batch)
    late.expect(client, tree, {7: batch})
    late.hurry()
    assert made.cancelled == [7]
    assert late.awaited_from(client), "it may have been too late for that"
    late.take(client, Completed(7, None, Cancelled("cancelled")))
    assert not late.awaited_from(client)
    assert tree.collect(Batch(8), 8).cache_hits == 0


@pytest.mark.integration
def test_late_results_are_not_awaited_when_the_evaluator_is_lost(link: EvaluatorLink) -> None:
    late, tree = LateResults(), new_tree(Game())
    first = link.client
    assert first is not None and link.pid is not None
    evaluator = psutil.Process(link.pid)
    evaluator.suspend()
    begun(link, late, tree).abandon()
    evaluator.kill()
    link.lost(first, "killed")
    assert link.wait(60) is not first
    pipeline = begun(link, late, tree)
    assert not late.awaited_from(link.client)
    while not pipeline.poll(PATIENCE_MS):
        pass
    assert tree.root_info().visits == 1


def test_a_pooled_search_leaves_late_answers_to_the_next_of_its_player() -> None:
    class Evaluator:
        def add(self, pipeline: object, batch: Batch) -> None:
            pass

    tree = new_tree(Game())
    evaluator = cast("PooledEvaluator[str]", Evaluator())
    pipeline = PooledPipeline("search", tree, evaluator, ("", "", ""), "hash", 8)
    batch = pipeline.take()
    tree.collect(batch, 8)
    logits, wdl, moves_left = evaluate_randomly(batch)
    pipeline.submit(batch)
    pipeline.abandon()
    assert not pipeline.waits_for(batch)
    assert not pipeline.apply(batch, EvaluationBatch(logits, wdl, moves_left)), "nobody waits for it"
    assert tree.root_info().visits == 0
    assert tree.collect(pipeline.take(), 8).cache_hits == 1

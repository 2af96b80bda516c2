"""Evaluations that come after their search has ended, with a real evaluator process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import psutil
import pytest

from engine._core import Batch, Game, evaluate_randomly
from engine.evaluation.late import LateAnswers
from engine.evaluation.link import EvaluatorLink
from engine.evaluation.pipeline import RemotePipeline
from engine.evaluation.process import EvaluatorSettings
from engine.evaluation.shared import SharedEvaluator, SharedPipeline
from engine.options import Options
from protocol.batch import EvaluationBatch
from tests.engine.core.tree.search_helpers import new_tree

PATIENCE_MS = 60_000


@pytest.fixture
def link() -> Iterator[EvaluatorLink]:
    made = EvaluatorLink(EvaluatorSettings.of(Options(backend="random")), print)
    made.start()
    assert made.wait(60) is not None
    yield made
    made.close()


def begun(link: EvaluatorLink, late: LateAnswers, tree: Any) -> RemotePipeline:
    """A pipeline with the root's position on its way."""
    pipeline = RemotePipeline(tree, link, capacity=8, input_format=1, late=late)
    batch = pipeline.take()
    assert tree.collect(batch, 8).evaluations == 1
    pipeline.submit(batch)
    return pipeline


def test_what_an_ended_search_had_asked_for_is_found_by_the_next(link: EvaluatorLink) -> None:
    late, tree = LateAnswers(), new_tree(Game())
    begun(link, late, tree).abandon()
    assert late.awaited_from(link.client)
    assert tree.root_info().batches_in_flight == 0
    client = link.client
    assert client is not None
    client.ping()  # The evaluator answers in turn: what was asked for before is there now.
    following = RemotePipeline(tree, link, capacity=8, input_format=1, late=late)
    while late.awaited_from(client):
        assert not following.poll(PATIENCE_MS), "it was not asked for by this search"
    assert tree.collect(following.take(), 8).cache_hits == 1


def test_what_is_still_queued_when_the_next_search_begins_is_left_out(link: EvaluatorLink) -> None:
    """The evaluator does nothing until it has been told so."""
    late, tree = LateAnswers(), new_tree(Game())
    client = link.client
    assert client is not None and link.pid is not None
    evaluator = psutil.Process(link.pid)
    evaluator.suspend()
    try:
        pipeline = begun(link, late, tree)
        pipeline.abandon()
        following = RemotePipeline(tree, link, capacity=8, input_format=1, late=late)
        assert late.awaited_from(client)
    finally:
        evaluator.resume()
    while late.awaited_from(client):
        following.poll(PATIENCE_MS)
    batch = following.take()
    tree.collect(batch, 8)
    following.submit(batch) if batch.size else tree.cancel(batch)
    while following.in_flight:
        following.poll(PATIENCE_MS)
    tree.collect(batch, 8)
    assert tree.root_info().visits > 0


def test_what_a_lost_evaluator_owed_is_not_awaited(link: EvaluatorLink) -> None:
    late, tree = LateAnswers(), new_tree(Game())
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
    evaluator = cast("SharedEvaluator[str]", Evaluator())
    pipeline = SharedPipeline("search", tree, evaluator, ("", "", ""), "hash", 8)
    batch = pipeline.take()
    tree.collect(batch, 8)
    logits, wdl, moves_left = evaluate_randomly(batch)
    pipeline.submit(batch)
    pipeline.abandon()
    assert not pipeline.waits_for(batch)
    assert not pipeline.apply(batch, EvaluationBatch(logits, wdl, moves_left)), "nobody waits for it"
    assert tree.root_info().visits == 0
    assert tree.collect(pipeline.take(), 8).cache_hits == 1

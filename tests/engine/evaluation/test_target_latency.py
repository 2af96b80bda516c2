# SPDX-License-Identifier: GPL-3.0-or-later
"""A search with little time asks the evaluator for a short latency, but not while it ponders."""

from __future__ import annotations

from typing import Any

import pytest

from engine._core import Game
from engine.evaluation.connection.link import EvaluatorLink
from engine.evaluation.pipeline import RemotePipeline
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.session import Session
from protocol.client import EvaluatorClient
from tests.engine.core.tree.search_helpers import new_tree


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The targets of all requests that are sent from now on."""
    targets: list[float | None] = []
    submit = EvaluatorClient.submit

    def recorded(self: EvaluatorClient, *arguments: Any, **named: Any) -> int:
        targets.append(named.get("target_ms"))
        return submit(self, *arguments, **named)

    monkeypatch.setattr(EvaluatorClient, "submit", recorded)
    return targets


def test_requests_ask_for_it_once_the_clock_runs(link: EvaluatorLink, asked: list[float | None]) -> None:
    control, tree = SearchControl(pondering=True), new_tree(Game())
    client = link.client
    assert client is not None
    pipeline = RemotePipeline(
        tree,
        link,
        capacity=8,
        network=client.network,
        target_ms=9.0,
        clock_runs=lambda: not control.pondering,
    )
    for _ in range(2):
        batch = pipeline.take()
        assert tree.collect(batch, 8).evaluations
        pipeline.submit(batch)
        while not pipeline.poll(60_000):
            pass
        control.ponder_hit()
    assert asked == [None, 9.0]


@pytest.mark.parametrize(("seconds", "hurries"), [(10, True), (600, False)])
def test_a_search_asks_for_it_by_its_clock(asked: list[float | None], seconds: int, hurries: bool) -> None:
    session = Session(Options(backend="random"), bursts=False)
    try:
        session.search(Limits(clock=Clock(1000 * seconds, 1000 * seconds), nodes=50))
    finally:
        session.close()
    assert asked
    assert {target is not None for target in asked} == {hurries}

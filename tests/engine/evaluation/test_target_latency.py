# SPDX-License-Identifier: GPL-3.0-or-later
"""A search with little time asks the evaluator for a short latency, but not while it ponders."""

from contextlib import closing
from time import perf_counter
from typing import Any

import pytest

from engine.evaluation.send.pooled_pipeline import PooledPipeline
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import QUICK_MS, Clock, Limits
from engine.search.report import Report
from engine.search.session import Session
from evaluator.settings import Settings
from protocol.client import EvaluatorClient


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The targets of all requests that are sent from now on, all by Python."""
    monkeypatch.setattr(PooledPipeline, "lend", lambda _: None)
    targets: list[float | None] = []
    submit = EvaluatorClient.submit

    def recorded(self: EvaluatorClient, *arguments: Any, **named: Any) -> int:
        targets.append(named.get("target_ms"))
        return submit(self, *arguments, **named)

    monkeypatch.setattr(EvaluatorClient, "submit", recorded)
    return targets


def test_requests_ask_for_it_once_the_clock_runs(asked: list[float | None]) -> None:
    control, seen = SearchControl(pondering=True), []

    def on_report(_report: Report) -> None:
        if control.pondering:
            seen.append(set(asked))
            asked.clear()
            control.ponder_hit()

    with closing(Session(Options(backend="random", batches_in_flight=1))) as session:
        session.search(
            Limits(movetime_ms=300, ponder=True), control=control, on_report=on_report, started=perf_counter()
        )
    assert seen == [{None}]
    assert {target is not None for target in asked[-10:]} == {True}


@pytest.mark.parametrize(("seconds", "hurries"), [(10, True), (600, False)])
def test_a_search_asks_for_it_by_its_clock(asked: list[float | None], seconds: int, hurries: bool) -> None:
    with closing(Session(Options(backend="random"))) as session:
        session.search(Limits(nodes=1))  # The evaluator may take longer to start than the clock allows.
        asked.clear()
        session.search(Limits(clock=Clock(1000 * seconds, 1000 * seconds), nodes=50))
    assert asked
    assert {target is not None for target in asked} == {hurries}


@pytest.mark.parametrize(
    ("limits", "target_ms"),
    [
        (Limits(clock=Clock(15_000, 15_000)), 15_000 / 40 / 32),
        (Limits(clock=Clock(1_000, 600_000)), 1.0),
        (Limits(clock=Clock(60_000, 60_000, 1000, 1000)), None),
        (Limits(clock=Clock(600_000, 600_000, 5000, 5000)), None),
        (Limits(movetime_ms=320), 10.0),
        (Limits(movetime_ms=5000), None),
        (Limits(nodes=100), None),
        (Limits(infinite=True), None),
    ],
)
def test_a_search_with_little_time_asks_for_a_short_latency(limits: Limits, target_ms: float | None) -> None:
    assert limits.target_ms("white") == (None if target_ms is None else pytest.approx(target_ms))


def test_the_side_to_move_decides() -> None:
    limits = Limits(clock=Clock(600_000, 8_000))
    assert limits.target_ms("white") is None
    assert limits.target_ms("black") == pytest.approx(8_000 / 40 / 32)


def test_the_engine_knows_the_default_target_of_class_play() -> None:
    assert Settings().play_latency_ms == QUICK_MS

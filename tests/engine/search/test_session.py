# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a player's search waits for its evaluator."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine._core import Game
from engine.evaluation.errors import EvaluatorLateError
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.search.loop import search
from engine.search.loop.search import InstantEvaluator, PooledSearch
from engine.search.player.player import Player

OVERHEAD_MS = 100


class Start(InstantEvaluator):
    """An evaluator that is being started, seen by a clock that runs only during the waits for it."""

    def __init__(self, seconds: float) -> None:
        """seconds: that the start takes."""
        super().__init__(8, print)
        self.now = 0.0
        self._seconds = seconds

    def offers(self, key: Any) -> Sequence[Any]:
        return super().offers(key) if self.now >= self._seconds else []

    def __call__(self) -> float:
        return self.now


def waited(monkeypatch: pytest.MonkeyPatch, start: Start, limits: Limits, control: SearchControl) -> bool:
    """Whether the search gets the evaluator in time; the start's `now` is then how long it has waited."""
    player = Player(Options(move_overhead_ms=OVERHEAD_MS, hash=1, tree_memory=16), print)
    monkeypatch.setattr(search, "perf_counter", start)
    running = PooledSearch(start, player, player.task(Game(), limits, 0.0), control=control, keeps_time=True)
    assert not running.take_first_step()
    while running.advance(1, 1) and running._search is None:
        start.now = running.due_at + 1e-6
    error = running.future.exception() if running.future.done() else None
    assert error is None or isinstance(error, EvaluatorLateError)
    return error is None


@pytest.mark.parametrize(("clock_ms", "seconds"), [(-20, 0.0), (90, 0.0), (110, 0.005), (1100, 0.5)])
def test_low_clock_awaits_no_evaluator(
    monkeypatch: pytest.MonkeyPatch, clock_ms: int, seconds: float
) -> None:
    start = Start(60)
    assert not waited(monkeypatch, start, Limits(clock=Clock(clock_ms, clock_ms)), SearchControl())
    assert start.now == pytest.approx(seconds, abs=1e-3)


def test_the_opponent_s_time_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Start(12)
    start.now = 11.5
    control = SearchControl(pondering=True)
    control.ponder_hit(start.now)
    assert waited(monkeypatch, start, Limits(clock=Clock(4000, 4000), ponder=True), control)

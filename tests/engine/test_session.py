# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a player's search waits for its evaluator."""

from __future__ import annotations

import pytest

from engine import session
from engine._core import Game
from engine.evaluation.errors import EvaluatorLateError
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.search.task import SearchTask
from engine.session import Session

OVERHEAD_MS = 100


class Start:
    """An evaluator that is being started, seen by a clock that stands still but for the waits for it.

    Stands for the link and for perf_counter.
    """

    was_connected = True

    def __init__(self, seconds: float) -> None:
        """seconds: that the start takes."""
        self.now = 0.0
        self._seconds = seconds

    def wait(self, timeout: float) -> Start | None:
        self.now += timeout + 1e-6
        return self if self.now >= self._seconds else None

    def __call__(self) -> float:
        return self.now


def waited(monkeypatch: pytest.MonkeyPatch, start: Start, limits: Limits, control: SearchControl) -> bool:
    """Whether the search gets the evaluator in time; the start's `now` is then how long it has waited."""
    game, options = Game(), Options(move_overhead_ms=OVERHEAD_MS)
    task = SearchTask(game, game.legal_moves(), limits, options, 0.0, random=None)  # type: ignore[arg-type]
    monkeypatch.setattr(session, "perf_counter", start)
    try:
        return Session._connected(start, task, control) is not None  # type: ignore[arg-type]
    except EvaluatorLateError:
        return False


@pytest.mark.parametrize(("clock_ms", "seconds"), [(-20, 0.0), (90, 0.0), (110, 0.005), (1100, 0.5)])
def test_a_low_clock_does_not_wait_for_the_evaluator(
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

# SPDX-License-Identifier: GPL-3.0-or-later
"""The recent past: steps, what rates begin with, and how much is kept."""

import pytest

from evaluator.devices.metrics import RequestTotals
from evaluator.service.http.history import MINUTE_S, RATE_S, STEP_S, STEPS, History, Reading
from protocol.wire.messages import PRIORITIES


class Counters:
    """Counters that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0
        self.positions = 0
        self.batches = 0

    def read(self) -> Reading:
        requests: dict[str, RequestTotals] = {name: RequestTotals() for name in PRIORITIES}
        return Reading(self.at, self.positions, self.batches, {}, requests, {}, {b"client": self.positions})

    def pass_time(self, history: History, steps: int, positions: int = 0, batches: int = 0) -> None:
        for _ in range(steps):
            self.at += STEP_S
            self.positions += positions
            self.batches += batches
            history.step()


def test_a_step_holds_what_happened_in_it() -> None:
    counters = Counters()
    history = History(counters.read)
    counters.pass_time(history, 1, positions=100, batches=4)
    counters.pass_time(history, 1)
    first, second = history.steps()
    assert (first.seconds, first.positions, first.batches) == (STEP_S, 100, 4)
    assert (second.positions, second.batches) == (0, 0)


def test_a_step_is_as_long_as_it_took() -> None:
    """The process may have stood still."""
    counters = Counters()
    history = History(counters.read)
    counters.at += 100
    counters.positions = 300
    history.step()
    history.step()  # no time has passed
    (step,) = history.steps()
    assert step.positions / step.seconds == 3


def test_ten_minutes_are_kept_and_no_more() -> None:
    counters = Counters()
    history = History(counters.read)
    counters.pass_time(history, 3 * STEPS, positions=2)
    assert len(history.steps()) == STEPS == pytest.approx(600 / STEP_S)


def test_rates_begin_ten_seconds_ago_and_percentiles_a_minute_ago() -> None:
    counters = Counters()
    history = History(counters.read)
    assert history.seconds_ago().at == history.minute_ago().at == counters.at
    counters.pass_time(history, 100)
    assert counters.at - history.seconds_ago().at == RATE_S
    assert counters.at - history.minute_ago().at == MINUTE_S


def test_the_history_of_clients_has_their_rates_alone() -> None:
    counters = Counters()
    history = History(counters.read)
    counters.pass_time(history, 100, positions=5)
    assert history.seconds_ago().clients == {b"client": counters.positions - 5 * RATE_S / STEP_S}
    assert history.minute_ago().clients == {}

# SPDX-License-Identifier: GPL-3.0-or-later
"""Windows in which `bench --service` measures, by the clock of a scripted client."""

from collections import deque

import pytest

from evaluator.commands.bench import IN_FLIGHT, WINDOWS, _pipelined_ms


class MergingClient:
    """A client of a service that merges all requests in flight into one batch of BATCH_S seconds."""

    BATCH_S = 2.0

    def __init__(self) -> None:
        self.now = 100.0
        self.answers = 0
        self._queued = 0
        self._ready: deque[MergingClient] = deque()

    @property
    def in_flight(self) -> int:
        return self._queued + len(self._ready)

    def submit(self, batch: object) -> None:
        self._queued += 1

    def receive(self) -> "MergingClient":
        if not self._ready:
            self.now += self.BATCH_S
            self._ready.extend([self] * self._queued)
            self._queued = 0
        self.answers += 1
        return self._ready.popleft()

    def result(self) -> None:
        """Nobody reads the answer."""

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize("seconds", [0.0, -3.0, 1e-9, 50.0])
def test_a_window_measures_a_whole_round_of_the_requests_in_flight(seconds: float) -> None:
    client = MergingClient()
    # An answer that waits in the buffer takes no time: one answer is no measurement.
    ms = _pipelined_ms(client, object(), seconds, client.clock)
    assert ms == pytest.approx(1000 * client.BATCH_S / IN_FLIGHT, rel=0.01)


def test_a_size_without_time_is_measured_for_one_round() -> None:
    client = MergingClient()
    _pipelined_ms(client, object(), 0.0, client.clock)
    assert client.answers <= 3 * IN_FLIGHT < WINDOWS * IN_FLIGHT

# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of the I/O thread: how long it takes messages in before it does anything else."""

import threading
from typing import Any

import pytest

from evaluator.devices.runners import now_ms
from evaluator.service import handlers, io_loop
from protocol.wire.messages import Ping
from tests.evaluator.service.echo import WAIT_S
from tests.evaluator.service.harness import Harness


def test_long_messages_do_not_keep_devices_waiting(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each millisecond of messages the devices are told of new requests, and answers are sent."""
    client, dispatcher = harness.client(), harness.service.record.dispatcher
    blocked, go = threading.Event(), threading.Event()
    taken_in: list[int] = [0]
    announce, pong = dispatcher.announce, handlers._HANDLERS[Ping]
    late_ms = [0.0]

    def slow(*arguments: Any) -> None:
        late_ms[0] += 0.6
        taken_in[-1] += 1
        pong(*arguments)

    def note(**options: Any) -> Any:
        attempt = announce(**options)
        taken_in.append(0)
        return attempt

    def block() -> None:
        blocked.set()
        assert go.wait(WAIT_S)

    monkeypatch.setattr(io_loop, "now_ms", lambda: now_ms() + late_ms[0])
    monkeypatch.setitem(handlers._HANDLERS, Ping, slow)
    monkeypatch.setattr(dispatcher, "announce", note)
    harness.service.record.call(block)
    assert blocked.wait(WAIT_S)
    for identity in range(1, 101):
        client._send(Ping(10**6 + identity))
    go.set()
    client.status()
    assert sum(taken_in) == 100
    assert max(taken_in) <= 2

# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining: what is there is finished, and nothing new is taken."""

import time

import pytest

from protocol.errors import Draining
from tests.evaluator.service.harness import WAIT_S, Harness, expected, numbered_batch, received, same


def test_draining_finishes_what_is_there_and_takes_nothing_new(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    harness.backend.hold()
    batch = numbered_batch(4)
    client.submit(batch)
    harness.backend.wait_entered()
    harness.service.drain()
    deadline = time.perf_counter() + WAIT_S
    while not other.status().draining:
        assert time.perf_counter() < deadline
    assert not other.status().ready
    with pytest.raises(Draining):
        other.evaluate(numbered_batch(1))
    with pytest.raises(Draining):
        harness.client()
    assert client.receive() is None
    assert client.draining
    harness.backend.gate.set()
    completed = received(client)
    assert same(completed.result(), expected(batch))
    harness.thread.join(WAIT_S)
    assert not harness.thread.is_alive()

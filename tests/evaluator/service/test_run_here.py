"""Which thread runs a batch: the one that received it, if that is quickest, and never to anybody's harm."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from evaluator.devices.dispatcher import HERE_MS
from evaluator.service import overlap
from protocol.batch import EvaluationBatch, PositionBatch
from tests.evaluator.service.harness import (
    WAIT_S,
    EchoBackend,
    Harness,
    expected,
    numbered_batch,
    running,
    same,
)


def threads_of(harness: Harness) -> list[str]:
    """The names of the threads that run batches from now on, in order."""
    names: list[str] = []

    def answer(batch: PositionBatch) -> EvaluationBatch:
        names.append(threading.current_thread().name)
        return expected(batch)

    harness.backend.answer = answer
    return names


def test_the_only_request_runs_on_the_thread_that_received_it(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        client = harness.client()
        names = threads_of(harness)
        for size in range(1, 9):
            batch = numbered_batch(size)
            assert same(client.evaluate(batch), expected(batch))
        assert {name.rpartition("-")[0] for name in names} == {"service"}


def test_a_batch_that_takes_long_runs_on_a_thread_of_the_device(tmp_path: Path) -> None:
    with running(tmp_path, make=lambda name: EchoBackend(4096)) as harness:
        client = harness.client()
        names = threads_of(harness)
        batch = numbered_batch(round(1000 * HERE_MS))  # The harness's curve: 1 ms, and 1 for each thousand.
        assert same(client.evaluate(batch), expected(batch))
        assert not any(name.startswith("service") for name in names)


def test_a_device_that_holds_the_receiving_thread_up_holds_nobody_else_up(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        client, other = harness.client(), harness.client()
        harness.backend.hold()
        batch = numbered_batch(3)
        client.submit(batch)
        harness.backend.wait_entered()
        for _ in range(3):
            other.ping()
        second = other.submit(numbered_batch(2))
        other.cancel(second)
        completed = other.receive(WAIT_S * 1000)
        assert completed is not None and completed.cancelled
        harness.backend.gate.set()
        answer = client.receive(WAIT_S * 1000)
        assert answer is not None and same(answer.result(), expected(batch))
        # The thread that was held up stands by now, and all goes on as before.
        assert same(other.evaluate(batch), expected(batch))
        assert same(client.evaluate(batch), expected(batch))


def test_requests_that_come_while_one_is_run_are_merged_and_answered(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        first, *others = (harness.client() for _ in range(5))
        harness.backend.hold()
        first.submit(numbered_batch(2))
        harness.backend.wait_entered()
        for index, client in enumerate(others):
            client.submit(numbered_batch(2, first=10 * index))
            client.ping()
        harness.backend.gate.set()
        for index, client in enumerate(others):
            completed = client.receive(WAIT_S * 1000)
            assert completed is not None
            assert same(completed.result(), expected(numbered_batch(2, first=10 * index)))


class TwoInFlight(EchoBackend):
    max_in_flight = 2


def test_a_request_that_comes_while_a_batch_is_run_is_handed_to_the_device_by_the_next_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "ENOUGH_PROCESSORS", 1)
    with running(tmp_path, make=lambda name: TwoInFlight()) as harness:
        client, backend = harness.client(), harness.backend
        names = threads_of(harness)
        for _ in range(overlap.MOST_SIGNS):
            backend.hold()
            for size in (1, 2):
                client.submit(numbered_batch(size))
                backend.wait_entered()
            backend.gate.set()
            for _ in range(2):
                completed = client.receive(WAIT_S * 1000)
                assert completed is not None
                size = len(completed.result().wdl)
                assert same(completed.result(), expected(numbered_batch(size)))
        # At first the second request is for a thread of the device, then for a second one of the service.
        assert [name.rpartition("-")[0] for name in names[-2:]] == ["service", "service"]
        assert names[-2] != names[-1]

# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that hang and faults in the service's own threads: all is answered, and the state is true."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluator.backends.common.base import BackendError
from evaluator.devices.runners import Runner
from evaluator.devices.running.failover import MAX_FAILURES, Attempt
from evaluator.devices.running.watchdog import Patience, Watchdog
from evaluator.scheduling.batching import BatchPolicy
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import DeviceFailed
from protocol.wire.messages import StatusReply
from tests.evaluator.service.echo import WAIT_S, expected, numbered_batch, same
from tests.evaluator.service.harness import answers, received, running, serving
from tests.evaluator.service.test_failures import failing, with_standby

IMPATIENT = Patience(hang_factor=1.0, hang_s=0.05, retry_s=0.01)


class HangOnce:
    """Lets the first batch hang, whichever device it is on, until `release`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._released = threading.Event()

    def __call__(self, batch: PositionBatch) -> EvaluationBatch:
        with self._lock:
            mine, self._taken = not self._taken, True
        if mine:
            assert self._released.wait(WAIT_S)
        return expected(batch)

    def release(self) -> None:
        self._released.set()


def status_when(client: EvaluatorClient, wanted: Callable[[StatusReply], bool]) -> StatusReply:
    """The first status of that kind."""
    while True:
        status = client.status()
        if wanted(status):
            return status


def fails(client: EvaluatorClient) -> None:
    with pytest.raises(DeviceFailed):
        client.evaluate(numbered_batch(4))


def test_another_device_answers_for_one_that_hangs(tmp_path: Path) -> None:
    patience = Patience(hang_factor=1.0, hang_s=0.5, retry_s=0.01)  # for the second one on a busy machine
    with serving(tmp_path, backends=("first", "second"), patience=patience) as (harness, client):
        assert client.status().state == "ready"
        hang = HangOnce()
        for backend in harness.backends:
            backend.answer = hang
        assert answers(client, 4)
        status = client.status()
        assert status.state == "degraded"
        assert status.ready
        assert "hangs" in status.reason
        assert status.metrics["device_hangs"] == 1
        hang.release()
        assert status_when(client, lambda status: status.state == "ready").since >= status.since


def test_the_only_device_hangs_and_its_request_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path, patience=IMPATIENT) as (harness, client):
        harness.backend.hold()
        with pytest.raises(DeviceFailed, match="hangs"):
            client.evaluate(numbered_batch(4))
        status = client.status()
        assert (status.state, status.ready) == ("degraded", False)
        with pytest.raises(DeviceFailed, match="no device"):
            client.evaluate(numbered_batch(4))
        harness.backend.gate.set()
        assert status_when(client, lambda status: status.ready).state == "ready"
        assert answers(client, 4)


def test_requests_behind_a_hanging_device_are_answered(tmp_path: Path) -> None:
    with serving(tmp_path, patience=IMPATIENT) as (harness, client):
        harness.occupy(client, 4)
        for _ in range(3):
            client.submit(numbered_batch(4))
        for _ in range(4):
            completed = received(client)
            assert isinstance(completed.error, DeviceFailed)


def test_a_standby_takes_over_and_clients_get_its_description(tmp_path: Path) -> None:
    with serving(tmp_path, patience=IMPATIENT) as (harness, client):
        standby = with_standby(harness)
        standby.device = "the slow one"
        harness.backend.hold()
        with contextlib.suppress(DeviceFailed):  # The standby may be open in time for it.
            client.evaluate(numbered_batch(4))
        status = status_when(client, lambda status: status.ready)
        assert status.state == "degraded"
        assert answers(client, 4)
        late = harness.client()
        assert late.network.device == "the slow one"
        assert [size for size, _ in late.curve] == [1, 4]
        harness.backend.gate.set()
        status_when(client, lambda status: status.state == "ready")
        assert harness.client().network.device == "test"


@pytest.fixture
def long_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of a device that hangs wait for an answer for as long as the test takes."""
    monkeypatch.setattr("evaluator.devices.running.watchdog.FOR_OTHERS", 1e6)


@pytest.mark.usefixtures("long_answers")
def test_an_answer_that_comes_late_is_used_and_the_device_with_it(tmp_path: Path) -> None:
    patience = Patience(hang_factor=1.0, hang_s=0.05, retry_s=1000.0)
    with running(tmp_path, patience=patience) as harness:
        client, other = harness.client(), harness.client()
        harness.backend.hold()
        batch = numbered_batch(4)
        client.submit(batch)
        status_when(other, lambda status: status.state == "degraded")
        harness.backend.gate.set()
        completed = received(client)
        assert same(completed.result(), expected(batch))
        assert other.status().state == "ready"
        assert len(harness.backend.sizes) == 1, "no probe was needed"


@pytest.mark.usefixtures("long_answers")
def test_of_two_answers_the_first_is_used(tmp_path: Path) -> None:
    patience = Patience(hang_factor=1.0, hang_s=0.05, retry_s=1000.0)
    with running(tmp_path, backends=("first", "second"), patience=patience) as harness:
        client, other = harness.client(), harness.client()
        for backend in harness.backends:
            backend.hold()
        batch = numbered_batch(4)
        client.submit(batch)
        status_when(other, lambda status: status.metrics["device_hangs"] == 2)
        for backend in harness.backends:
            backend.gate.set()
        completed = received(client)
        assert same(completed.result(), expected(batch))
        assert status_when(other, lambda status: status.state == "ready").metrics["errors"] == {}
        for first in range(3):
            assert answers(client, 4, first)


@pytest.mark.usefixtures("long_answers")
def test_request_goes_to_others_when_a_late_answer_is_none(tmp_path: Path) -> None:
    patience = Patience(hang_factor=1.0, hang_s=0.05, retry_s=0.01)
    with running(tmp_path, backends=("first", "second"), patience=patience) as harness:
        client, other = harness.client(), harness.client()
        first, second = harness.backends
        for backend in harness.backends:
            backend.hold()
        batch = numbered_batch(4)
        client.submit(batch)
        status_when(other, lambda status: status.metrics["device_hangs"] == 2)
        hung_first = first if first.sizes else second
        hung_first.answer = failing
        hung_first.gate.set()
        (second if hung_first is first else first).gate.set()
        completed = received(client)
        assert same(completed.result(), expected(batch))


def test_no_standby_opens_when_processors_are_short(tmp_path: Path) -> None:
    with serving(tmp_path, patience=IMPATIENT) as (harness, client):
        opening = threading.Event()

        def open_standby() -> Runner:
            opening.set()
            raise BackendError("nobody was to open it")

        harness.service.record.networks.find("").open_standby = open_standby
        harness.backend.on_host = True
        harness.backend.hold()
        fails(client)
        assert not client.status().ready
        assert not opening.is_set()
        harness.backend.gate.set()
        assert status_when(client, lambda status: status.ready).state == "ready"


def test_a_driver_that_does_not_return_is_reported_once(tmp_path: Path) -> None:
    reasons: list[str] = []
    reported = threading.Event()

    def on_hung(reason: str) -> None:
        reasons.append(reason)
        reported.set()

    with serving(tmp_path, patience=IMPATIENT, on_hung=on_hung) as (harness, client):
        harness.backend.hold()
        fails(client)
        assert reported.wait(WAIT_S)
        harness.backend.gate.set()
        assert status_when(client, lambda status: status.ready).state == "ready"
    assert len(reasons) == 1
    assert "0:echo hangs" in reasons[0]


def test_nobody_waits_for_a_standby_that_is_long_in_opening(tmp_path: Path) -> None:
    opening = threading.Event()
    patience = Patience(hang_factor=1.0, hang_s=0.2, retry_s=1000.0)
    with serving(tmp_path, patience=patience) as (harness, client):
        with_standby(harness)
        network = harness.service.record.networks.find("")
        open_at_once = network.open_standby
        assert open_at_once is not None

        def open_late() -> Runner:
            assert opening.wait(WAIT_S)
            return open_at_once()

        def broken(batch: PositionBatch) -> EvaluationBatch:
            raise RuntimeError("it is broken")

        network.open_standby = open_late
        harness.backend.answer = broken
        with pytest.raises(DeviceFailed, match="it is broken"):  # the one that waits to be tried again
            client.evaluate(numbered_batch(4))
        for _ in range(MAX_FAILURES):
            fails(client)
        with pytest.raises(DeviceFailed, match="try again later"):  # those that come later
            client.evaluate(numbered_batch(4))
        assert not client.status().ready
        opening.set()
        assert status_when(client, lambda status: status.ready).state == "degraded"
        assert answers(client, 4)


def test_devices_that_hang_in_turn_share_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patience = Patience(hang_factor=0.0, hang_s=0.4)
    watched: list[tuple[Attempt, float]] = []
    watch = Watchdog.watch

    def noted(watchdog: Watchdog[Any], work: Any, due_ms: float) -> None:
        if isinstance(work, Attempt) and not work.job.is_probe:
            watched.append((work, due_ms))
        watch(watchdog, work, due_ms)

    monkeypatch.setattr(Watchdog, "watch", noted)
    with serving(tmp_path, backends=("first", "second"), patience=patience) as (harness, client):
        for backend in harness.backends:
            backend.hold()
        with pytest.raises(DeviceFailed, match="hangs"):
            client.evaluate(numbered_batch(4))
        for backend in harness.backends:
            backend.gate.set()
    (first, _), (second, due_ms) = watched
    assert first.job is second.job and first.runner is not second.runner
    assert first.job.began_ms is not None
    assert due_ms <= first.job.began_ms + patience.answer_ms(0)


def test_a_device_that_failed_is_tried_again_and_comes_back(tmp_path: Path) -> None:
    with serving(tmp_path, patience=IMPATIENT) as (harness, client):
        # A backend opened anew works, and until then each probe fails.
        harness.backend.answer = failing
        for _ in range(MAX_FAILURES):
            fails(client)
        status_when(client, lambda status: status.state == "ready")
        assert harness.backend.closed
        assert answers(client, 4)


def test_a_service_with_a_device_that_hangs_can_be_stopped(tmp_path: Path) -> None:
    with serving(tmp_path, patience=IMPATIENT) as (harness, client):
        harness.occupy(client, 4)
        harness.service.stop()
        harness.thread.join(WAIT_S)
        assert not harness.thread.is_alive()
        assert not harness.backend.closed


def test_a_service_with_a_device_that_hangs_can_be_drained(tmp_path: Path) -> None:
    with running(tmp_path, patience=IMPATIENT) as harness:
        client, other = harness.client(), harness.client()
        harness.occupy(client, 4)
        other.drain(WAIT_S)
        completed = received(client)
        assert isinstance(completed.error, DeviceFailed)
        harness.thread.join(WAIT_S)
        assert not harness.thread.is_alive()


def test_without_patience_a_service_stops_while_a_batch_is_in_flight(tmp_path: Path) -> None:
    with serving(tmp_path) as (harness, client):
        harness.occupy(client, 4)
        harness.service.stop_at_once()
        harness.thread.join(WAIT_S)
        assert not harness.thread.is_alive()


@pytest.mark.parametrize("place", ["devices.running.workers.distribute", "service.replies.encode_result"])
def test_memory_that_lacks_for_an_answer_costs_that_answer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def scarce(*arguments: Any) -> Any:
        raise MemoryError("no room for the answers")

    with serving(tmp_path) as (_, client):
        monkeypatch.setattr(f"evaluator.{place}", scarce)
        for _ in range(3):  # more often than the device has threads
            with pytest.raises(DeviceFailed, match="no room for the answers"):
                client.evaluate(numbered_batch(4))
        monkeypatch.undo()
        assert answers(client, 4)


def test_fault_in_choosing_a_batch_ends_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as (_, client):
        decide = BatchPolicy.decide
        faults: list[int] = []

        def faulty(*arguments: Any) -> Any:
            if not faults:
                faults.append(1)
                raise ZeroDivisionError("a fault of the policy")
            return decide(*arguments)

        monkeypatch.setattr(BatchPolicy, "decide", faulty)
        assert answers(client, 4)
        assert faults


def test_an_exception_that_is_no_exception_costs_one_batch(tmp_path: Path) -> None:
    def leave(batch: PositionBatch) -> EvaluationBatch:
        raise SystemExit("a library wants to end the process")

    with serving(tmp_path) as (harness, client):
        harness.backend.answer = leave
        fails(client)
        harness.backend.answer = expected
        assert answers(client, 4)


def test_a_backend_whose_standby_cannot_open_says_so(tmp_path: Path) -> None:
    def missing() -> Any:
        raise BackendError("there is no other library")

    with serving(tmp_path, patience=Patience(retry_s=WAIT_S)) as (harness, client):
        harness.service.record.networks.find("").open_standby = missing

        harness.backend.answer = failing
        for _ in range(MAX_FAILURES):
            fails(client)
        status = client.status()
        assert (status.state, status.ready) == ("degraded", False)
        assert "fell off the bus" in status.reason

# SPDX-License-Identifier: GPL-3.0-or-later
"""What an idle device tries, and when."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from evaluator.backends.common.base import BackendError
from evaluator.devices.runners import Device, Runner, new_runner
from evaluator.devices.running import trials
from evaluator.devices.running.trials import IDLE_TIMES, LOOK_MS, next_trial
from evaluator.devices.served_network import ServedNetwork
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.growth import TRIES, Growth
from evaluator.scheduling.latency import LatencyModel, steps_to
from evaluator.scheduling.requests import Request
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.wire.messages import NetworkInfo
from tests.evaluator.service.echo import EchoBackend, expected, numbered_batch, same
from tests.evaluator.service.harness import Harness, answers, received, running, serving

NOW = 1e9


def cut_short(points: dict[int, float], most: int) -> LatencyModel:
    return LatencyModel(points, max(points), growth=Growth(steps_to(most), points))


def served(model: LatencyModel) -> tuple[ServedNetwork, Runner]:
    runner = new_runner(Device("0:echo"), EchoBackend(), model, LatencyTargets(), lambda: None)
    return ServedNetwork(NetworkInfo("a", "hash", 1), [runner]), runner


def test_an_idle_device_tries_the_next_size() -> None:
    network, runner = served(cut_short({1: 10.0, 8: 12.0}, 64))
    assert next_trial([network], runner.device, NOW) == (network, runner, 16)


def test_a_device_is_idle_for_a_multiple_of_a_trials_time_first() -> None:
    network, runner = served(cut_short({1: 10.0, 8: 12.0}, 64))
    begins_ms = NOW + IDLE_TIMES * runner.model.milliseconds(16)
    for note in ("last_end_ms", "trial_end_ms", "reserved_end_ms"):
        setattr(runner.device, note, NOW)
        assert next_trial([network], runner.device, NOW + 1) == begins_ms
        assert next_trial([network], runner.device, begins_ms) == (network, runner, 16)
        setattr(runner.device, note, 0.0)
    runner.policy.arrived("engine", 1, 0, NOW)
    assert next_trial([network], runner.device, NOW + 1) == begins_ms


def test_a_device_with_work_is_left_alone() -> None:
    network, runner = served(cut_short({1: 10.0, 8: 12.0}, 64))
    runner.device.expected_end_ms.append(NOW)
    assert next_trial([network], runner.device, NOW) == NOW + LOOK_MS
    runner.device.expected_end_ms.clear()
    network.scheduler.add(Request("a", 1, numbered_batch(4), 2, NOW))
    assert next_trial([network], runner.device, NOW) == NOW + LOOK_MS


def test_nothing_is_tried_when_known_or_beyond_targets() -> None:
    known, runner = served(LatencyModel({1: 10.0, 8: 12.0}, 8))
    assert next_trial([known], runner.device, NOW) is None
    slow, runner = served(cut_short({1: 700.0, 8: 900.0}, 64))
    assert next_trial([slow], runner.device, NOW) is None


def test_a_backend_that_is_still_tuned_is_not_measured() -> None:
    network, runner = served(cut_short({1: 10.0}, 64))
    runner.backend.provisional = True
    assert next_trial([network], runner.device, NOW) is None


# -- in a service ----------------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has nothing to do tries at once."""
    monkeypatch.setattr(trials, "IDLE_TIMES", 0.0)
    monkeypatch.setattr(trials, "LOOK_MS", 1.0)


def forget(harness: Harness, points: dict[int, float]) -> None:
    """Have the service know no more than some points."""
    (runner,) = harness.service.record.networks.find("").runners
    with harness.service.record.dispatcher._lock:
        runner.policy.model = cut_short(points, 64)
        harness.service.record.dispatcher._workers.notify(runner.device)


def measured_when(client: EvaluatorClient, wanted: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """The first status of the curve of that kind."""
    while True:
        (devices,) = client.status().metrics["curves"].values()
        (told,) = devices.values()
        if wanted(told):
            return dict(told)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("side_by_side", [False, True])
def test_a_service_measures_to_the_end_while_nobody_asks(tmp_path: Path, side_by_side: bool) -> None:
    def make(name: str) -> EchoBackend:
        backend = EchoBackend(max_batch=64)
        if side_by_side:
            backend.max_in_flight, backend.side_by_side = 2, True
        return backend

    with serving(tmp_path, make=make) as (harness, client):
        harness.backend.sizes.clear()
        forget(harness, {1: 1.0, 8: 1.001})
        told = measured_when(client, lambda told: bool(told["known"]))
        assert told["largest"] == 64
        assert told["measured"] > 8
        assert harness.backend.sizes[:TRIES] == [16] * TRIES
        assert answers(client, 4)


class Crowded(EchoBackend):
    """Computes two batches concurrently. A batch ends once another has begun, or after a while."""

    max_in_flight = 2

    def __init__(self) -> None:
        super().__init__(max_batch=64)
        self._both = threading.Barrier(2)

    def computes_beside(self, positions: int) -> bool:
        return True

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        with suppress(threading.BrokenBarrierError):
            self._both.wait(0.02)
        self._both.reset()
        return super().evaluate(batch)


def test_a_curve_grows_under_load_if_all_batches_are_concurrent(tmp_path: Path) -> None:
    with running(tmp_path, make=lambda name: Crowded()) as harness:
        client, asking = harness.client(), harness.client()
        forget(harness, {1: 20.0, 8: 21.0})
        for _ in range(64):
            client.submit(numbered_batch(8), priority="selfplay")
        while True:
            (devices,) = asking.status().metrics["curves"].values()
            if devices["0:echo"]["measured"] == 64:
                break
            received(client)
            client.submit(numbered_batch(8), priority="selfplay")


@pytest.mark.usefixtures("soon")
def test_a_trial_that_fails_harms_neither_device_nor_requests(tmp_path: Path) -> None:
    def small_only(batch: PositionBatch) -> EvaluationBatch:
        if len(batch) > 8:
            raise BackendError("out of memory")
        return expected(batch)

    with serving(tmp_path, make=lambda name: EchoBackend(max_batch=64)) as (harness, client):
        harness.backend.answer = small_only
        forget(harness, {1: 1.0, 8: 1.001})
        assert measured_when(client, lambda told: bool(told["known"]))["measured"] == 8
        assert client.status().state == "ready"
        assert client.status().metrics["device_failures"] == 0
        assert answers(client, 20)


@pytest.mark.usefixtures("soon")
def test_a_request_that_comes_during_a_trial_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path, make=lambda name: EchoBackend(max_batch=64)) as (harness, client):
        harness.backend.hold()
        forget(harness, {1: 1.0, 8: 1.001})
        harness.backend.wait_entered()
        batch = numbered_batch(4)
        client.submit(batch)
        harness.backend.gate.set()
        assert same(received(client).result(), expected(batch))

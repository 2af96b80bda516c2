# SPDX-License-Identifier: GPL-3.0-or-later
"""A backend that serves by guesses is replaced by what measuring finds, beside the requests."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.common.device_lease import DeviceLease
from evaluator.devices.runners import Device, Runner, new_runner
from evaluator.devices.running.tuning import PLAYING_MS, QUIET_MS, SHARE, SHARE_OF_PLAY, BackgroundTuning
from evaluator.devices.served_network import ServedNetwork
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.latency import LatencyModel
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch
from protocol.wire.messages import NetworkInfo
from tests.evaluator.service.echo import WAIT_S, EchoBackend, expected, numbered_batch, same
from tests.evaluator.service.harness import answers, received, running, serving


class GuessedBackend(EchoBackend):
    """Is tuned once `go` is set: then has the device for a slice, which ends when `enough` is set."""

    provisional = True

    def __init__(self) -> None:
        super().__init__()
        self.successor = EchoBackend()
        self.began, self.go = threading.Event(), threading.Event()
        self.leased, self.enough = threading.Event(), threading.Event()
        self.failure: Exception | None = None

    def tuned(self, lease: DeviceLease, progress: Callable[[str], None]) -> Backend | None:
        progress("3 of 7")
        self.began.set()
        assert self.go.wait(WAIT_S)
        with lease():
            self.leased.set()
            assert self.enough.wait(WAIT_S)
        if self.failure is not None:
            self.successor.close()
            raise self.failure
        return self.successor


@pytest.fixture
def guessed() -> GuessedBackend:
    return GuessedBackend()


def answer_to(client: EvaluatorClient) -> EvaluationBatch:
    """What comes next."""
    return received(client).result()


def test_it_serves_at_once_until_it_is_measured(tmp_path: Path, guessed: GuessedBackend) -> None:
    guessed.enough.set()
    batch = numbered_batch(5)
    with serving(tmp_path, make=lambda name: guessed) as (_, client):
        assert same(client.evaluate(batch), expected(batch))
        assert guessed.began.wait(WAIT_S)
        tuning = client.status().metrics["tuning"]
        assert tuning["0:echo"].startswith("measuring matrix products")
        assert "3 of 7" in tuning["0:echo"]
        guessed.go.set()
        assert guessed.was_closed.wait(WAIT_S)
        while not client.notices:  # Its curve is another one now.
            client.take_notices()
        for first in range(3):
            assert answers(client, 5, first)
        assert len(guessed.successor.sizes) >= 3
    assert guessed.successor.closed


def test_other_formats_wait_for_a_pause_of_play(
    tmp_path: Path, guessed: GuessedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def wait(tuning: BackgroundTuning, network: ServedNetwork) -> None:
        if guessed.leased.is_set():
            waits.set()
        tuning._changed.wait(0.001)

    monkeypatch.setattr(BackgroundTuning, "_wait", wait)
    monkeypatch.setattr("evaluator.devices.running.tuning.PLAYING_MS", 1e9)
    guessed.successor.precision = "fp8 from 64 positions: 1.4 times as fast"
    guessed.enough.set()
    with serving(tmp_path, make=lambda name: guessed) as (_, client):
        before = client.network.identity
        client.evaluate(numbered_batch(3), priority="play")
        guessed.go.set()
        assert waits.wait(WAIT_S) and not guessed.was_closed.is_set()
        monkeypatch.setattr("evaluator.devices.running.tuning.PLAYING_MS", 0.0)
        assert guessed.was_closed.wait(WAIT_S)
        (network,) = client.status().networks
        assert network.identity == f"{before} fp8 from 64 positions"


def test_batches_wait_while_it_is_measured(tmp_path: Path, guessed: GuessedBackend) -> None:
    guessed.go.set()
    batch = numbered_batch(7)
    with running(tmp_path, make=lambda name: guessed) as harness:
        client, other = harness.client(), harness.client()
        assert guessed.leased.wait(WAIT_S)
        client.submit(batch)
        while not other.status().metrics["queued_positions"]:
            pass
        assert guessed.sizes == []
        guessed.enough.set()
        assert same(answer_to(client), expected(batch))
    assert guessed.successor.closed


def test_a_batch_in_flight_ends_first(tmp_path: Path, guessed: GuessedBackend) -> None:
    guessed.enough.set()
    batch = numbered_batch(4)
    with serving(tmp_path, make=lambda name: guessed) as (_, client):
        guessed.hold()
        client.submit(batch, priority="analysis")
        guessed.wait_entered()
        guessed.go.set()
        assert not guessed.leased.wait(0.1)
        guessed.gate.set()
        assert same(answer_to(client), expected(batch))
        assert guessed.leased.wait(WAIT_S)
    assert guessed.successor.closed


def test_network_keeps_its_program_when_tuning_fails(
    tmp_path: Path, guessed: GuessedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    guessed.failure = BackendError("a kernel was wrong")
    guessed.go.set()
    guessed.enough.set()
    batch = numbered_batch(4)
    with caplog.at_level(logging.WARNING), running(tmp_path, make=lambda name: guessed) as harness:
        assert guessed.successor.was_closed.wait(WAIT_S)
        client = harness.client()
        while client.status().metrics["tuning"]:
            pass
        assert same(client.evaluate(batch), expected(batch))
        assert not guessed.closed
    assert "stays as it is: a kernel was wrong" in caplog.text


def test_a_service_that_ends_does_not_wait_for_it(tmp_path: Path, guessed: GuessedBackend) -> None:
    with running(tmp_path, make=lambda name: guessed):
        assert guessed.began.wait(WAIT_S)
    guessed.go.set()  # it asks for the device of a service that has ended
    assert not guessed.leased.wait(0.1)


# -- when the device may be had --------------------------------------------------------------------------


def runner_of(tuned: list[Device]) -> tuple[Runner, BackgroundTuning]:
    model = LatencyModel({1: 1.0, 64: 8.0}, 64)
    runner = new_runner(Device("0:echo"), EchoBackend(), model, LatencyTargets(), lambda: None)
    network = ServedNetwork(NetworkInfo("a", "hash", 1), [runner])
    lock = threading.RLock()
    return runner, BackgroundTuning(lock, [network], threading.Condition(lock), tuned.append, lambda: None)


def test_device_between_batches_is_free_for_a_share_of_time() -> None:
    runner, tuning = runner_of([])
    device = runner.device
    device.reserved_ms, device.reserved_end_ms = 2.0, 1000.0
    runner.policy.arrived("a", 1, 2, 1000.0)
    device.last_end_ms = 1001.0
    assert not tuning._is_free(device, 1002.0)
    assert tuning._is_free(device, 1001.0 + QUIET_MS)
    device.expected_end_ms.append(1e9)
    assert not tuning._is_free(device, 999.0 + 2.0 / SHARE)
    assert tuning._is_free(device, 1001.0 + 2.0 / SHARE)


def test_while_somebody_plays_the_share_is_smaller() -> None:
    runner, tuning = runner_of([])
    device = runner.device
    device.expected_end_ms.append(1e9)
    device.reserved_ms, device.reserved_end_ms = 2.0, 1000.0
    runner.policy.arrived("a", 1, 0, 1000.0)
    assert not tuning._is_free(device, 1001.0 + 2.0 / SHARE)
    assert tuning._is_free(device, 1001.0 + 2.0 / SHARE_OF_PLAY)
    runner.policy.arrived("a", 1, 0, 1000.0 - PLAYING_MS)  # the game is over
    assert tuning._is_free(device, 1001.0 + 2.0 / SHARE)


def test_a_device_that_comes_back_looks_at_the_queues() -> None:
    told: list[Device] = []
    runner, tuning = runner_of(told)
    runner.device.reserved = True
    tuning._take_back(runner.device, 0.0)
    assert told == [runner.device]
    assert not runner.device.reserved
    assert runner.device.reserved_ms == runner.device.reserved_end_ms > 0.0

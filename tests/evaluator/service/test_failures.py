# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that fail or give nonsense: clients see latency, not errors, as long as anything can evaluate."""

from pathlib import Path

import numpy as np
import pytest

from evaluator.backends.common.base import BackendError
from evaluator.devices.runners import Device, Runner, new_runner
from evaluator.devices.running.failover import MAX_FAILURES
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.latency import LatencyModel
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import DeviceFailed
from tests.evaluator.service.echo import EchoBackend, expected, numbered_batch
from tests.evaluator.service.harness import Harness, answers, received, serving


def failing(batch: PositionBatch) -> EvaluationBatch:
    raise BackendError("the device fell off the bus")


def not_finite(batch: PositionBatch) -> EvaluationBatch:
    evaluation = expected(batch)
    evaluation.logits[len(evaluation.logits) // 2] = np.nan
    return evaluation


def wrong_size(batch: PositionBatch) -> EvaluationBatch:
    evaluation = expected(batch)
    return EvaluationBatch(evaluation.logits[:-1], evaluation.wdl, evaluation.moves_left)


def with_standby(harness: Harness) -> EchoBackend:
    """Give the only network a standby that works."""
    standby = EchoBackend(max_batch=4)
    harness.backends.append(standby)
    model = LatencyModel({1: 1.0, 4: 2.0}, standby.max_batch)

    def open_standby() -> Runner:
        return new_runner(Device("standby:echo"), standby, model, LatencyTargets(), lambda: None)

    harness.service.record.networks.find("").open_standby = open_standby
    return standby


@pytest.mark.parametrize("fault", [failing, wrong_size])
def test_the_batch_of_a_device_that_fails_goes_to_another_device(tmp_path: Path, fault: object) -> None:
    with serving(tmp_path, backends=("first", "second")) as (harness, client):
        harness.backends[0].answer = fault  # type: ignore[assignment]
        for first in range(0, 100, 10):
            assert answers(client, 10, first)
        metrics = client.status().metrics
        assert metrics["device_failures"] <= MAX_FAILURES
        assert metrics["errors"] == {}


def test_a_device_that_keeps_failing_is_left_out(tmp_path: Path) -> None:
    with serving(tmp_path, backends=("first", "second")) as (harness, client):
        harness.backends[0].answer = failing
        harness.backends[1].hold()
        client.submit(numbered_batch(1))
        # With the second device held, the first one gets everything, until it is left out.
        for _ in range(MAX_FAILURES + 3):
            client.submit(numbered_batch(1))
        client.ping()
        harness.backends[1].gate.set()
        for _ in range(MAX_FAILURES + 4):
            completed = received(client)
            assert completed.error is None
        assert client.status().metrics["device_failures"] <= MAX_FAILURES


def test_the_only_device_is_replaced_by_the_standby(tmp_path: Path) -> None:
    with serving(tmp_path) as (harness, client):
        standby = with_standby(harness)
        harness.backend.answer = failing
        for _ in range(MAX_FAILURES + 2):
            assert answers(client, 10)
        metrics = client.status().metrics
        assert metrics["device_failures"] == MAX_FAILURES
        assert metrics["fallback_batches"] > MAX_FAILURES
        assert sum(standby.sizes) == 10 * (MAX_FAILURES + 2)
        assert max(standby.sizes) <= standby.max_batch


def test_client_gets_the_reason_when_everything_fails(tmp_path: Path) -> None:
    with serving(tmp_path) as (harness, client):
        harness.backend.answer = failing
        with pytest.raises(DeviceFailed):
            client.evaluate(numbered_batch(4))
        metrics = client.status().metrics
        assert metrics["batches"] == metrics["positions"] == metrics["classes"]["play"]["requests"] == 0
        assert metrics["errors"] == {"device_failed": 1}
        harness.backend.answer = expected
        assert answers(client, 4)
        assert client.status().metrics["positions"] == 4


def test_output_that_is_not_finite_never_leaves(tmp_path: Path) -> None:
    with serving(tmp_path) as (harness, client):
        harness.backend.answer = not_finite
        with pytest.raises(DeviceFailed):
            client.evaluate(numbered_batch(4))
        with_standby(harness)
        assert answers(client, 4)
        assert client.status().metrics["not_finite"] == 2

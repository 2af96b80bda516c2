# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding and opening backends by name."""

import logging
from typing import Any

import numpy as np
import pytest

from evaluator.backends import BackendError, available_backends, backend_names, needs_network, open_backend
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.onnx.backend import OnnxBackend
from evaluator.network.random_network import random_network
from evaluator.settings import DeviceSettings


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose GPU, if it has one, cannot be used."""
    monkeypatch.setattr("evaluator.backends.gpu.backend.unavailable", lambda: "hidden by the test")


def test_lists_what_is_built_in() -> None:
    assert set(backend_names()) >= {"auto", "onnx", "reference", "random", "uniform"}
    assert available_backends()["onnx"] is None


def test_knows_who_needs_a_network() -> None:
    needing = [name for name in ("auto", "onnx", "random", "uniform") if needs_network(name)]
    assert needing == ["auto", "onnx"]


@pytest.mark.usefixtures("without_gpu")
def test_auto_takes_the_only_candidate() -> None:
    with open_backend("auto", random_network("tiny-resnet"), DeviceSettings(threads=1)) as backend:
        assert isinstance(backend, OnnxBackend)
        assert backend.threads == 1


@pytest.mark.integration
@pytest.mark.usefixtures("without_gpu")
def test_auto_measures_and_says_so_when_it_may_quantise(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is random is changed more by 8 bits than what was trained.
    monkeypatch.setattr("evaluator.backends.onnx.backend.MAX_LOGITS_ERROR", 0.1)
    network = random_network("tiny-attention")
    with caplog.at_level(logging.INFO), open_backend("auto", network, int8=True) as backend:
        assert isinstance(backend, OnnxBackend)
    assert "positions/s at batch 32" in caplog.text


@pytest.mark.parametrize(
    ("name", "network", "options", "message"),
    [
        ("tpu", True, {}, "there is no backend 'tpu'; known are auto, "),
        ("onnx", False, {}, "backend onnx needs a network"),
        ("auto", False, {}, "ask for random or uniform"),
        ("onnx", True, {"int8": "maybe"}, "backend onnx: int8 is true or false, not 'maybe'"),
        ("onnx", True, {"tuning": 3}, "has no option 'tuning'; it takes buckets, device, "),
        ("reference", True, {"dtype": "int3"}, "dtype must be float32 or float64"),
    ],
)
def test_says_what_is_wrong(name: str, network: bool, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendError, match=message):
        open_backend(name, random_network("tiny-resnet") if network else None, **options)


def test_int8_is_for_attention_bodies() -> None:
    with pytest.raises(BackendError, match="int8 is for networks with an attention body"):
        open_backend("onnx", random_network("tiny-resnet"), int8=True)


def test_a_closed_onnx_backend_refuses() -> None:
    backend = open_backend("onnx", random_network("tiny-resnet"))
    backend.close()
    with pytest.raises(BackendError, match="closed"):
        backend.evaluate(probe_batch(1))


def test_uniform_prefers_nothing() -> None:
    result = open_backend("uniform", None).evaluate(probe_batch(3))
    assert np.all(result.logits == 0)
    assert np.all(result.wdl == [0.25, 0.5, 0.25])
    assert len(result.logits) == 3 * 35

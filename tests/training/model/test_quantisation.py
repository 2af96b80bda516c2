# SPDX-License-Identifier: GPL-3.0-or-later
"""Training rounds as the processor's int8 pass does, and gradients pass through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.backends.batches import expand_planes
from evaluator.backends.onnx.calibration import calibrated, feed_of, largest_weight
from evaluator.backends.onnx.model import build_model, build_observed_model
from evaluator.backends.onnx.quantisation import (
    INPUT_STEPS,
    LARGEST_WEIGHT,
    Rounding,
    quantised_weights,
    rounding_of,
)
from evaluator.backends.onnx.runtime import onnxruntime as ort
from evaluator.backends.sample import sample_batch
from evaluator.network.random_network import random_network
from tests.shapes import EVERY_PRODUCT

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.model.network import AttentionNetwork, policy_source  # noqa: E402
from training.model.quantisation import quantised  # noqa: E402

SPEC = random_network(EVERY_PRODUCT, seed=5)
BATCH = sample_batch(SPEC.input_format).slice(0, 32)


exact_sums = pytest.mark.skipif(
    largest_weight() != LARGEST_WEIGHT, reason="training rounds for processors that add products in 32 bits"
)


def session_of(model: bytes) -> ort.InferenceSession:
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def roundings() -> dict[str, Rounding]:
    """For the ranges of BATCH, which are those that training takes when it sees that batch."""
    model, products = build_observed_model(SPEC)
    return calibrated(session_of(model.SerializeToString()), products, BATCH)


def by_the_backend(roundings: Mapping[str, Rounding]) -> NDArray[np.float32]:
    model = build_model(SPEC, packed=True, roundings=roundings)
    [policy] = session_of(model.SerializeToString()).run(["policy"], feed_of(BATCH))
    return np.asarray(policy)


@torch.no_grad()
def by_training(network: AttentionNetwork) -> NDArray[np.float32]:
    planes = expand_planes(BATCH.positions).astype(np.float32)
    tokens = torch.from_numpy(np.ascontiguousarray(planes.transpose(0, 2, 1)))
    policy: NDArray[np.float32] = network(tokens).policy.numpy()[:, policy_source()]
    return policy


def rms(difference: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.square(difference).mean()))


def part_of(network: AttentionNetwork, name: str) -> Any:
    """The module that computes a product."""
    place, kind = name.rsplit(".", 1)
    if place == "embedding":
        return {"ffn1": network.tail_ffn.dense1, "ffn2": network.tail_ffn.dense2}[kind]  # type: ignore[union-attr]
    layer: Any = network.encoders[int(place.removeprefix("encoders."))]
    return {
        "qkv": layer.attention,
        "smolgen_in": layer.attention.smolgen.dense1,
        "smolgen_out": layer.attention.smolgen,
        "output": layer.attention.output,
        "ffn1": layer.ffn.dense1,
        "ffn2": layer.ffn.dense2,
    }[kind]


@exact_sums
def test_each_product_in_training_is_that_of_the_int8_backend(roundings: Mapping[str, Rounding]) -> None:
    """But for the few values that lie between two steps and go to the other one, as sums come out in the last
    digit."""
    network = AttentionNetwork(SPEC).eval()
    exact = by_training(network)
    assert len(roundings) == 14
    for name, rounding in roundings.items():
        expected = by_the_backend({name: rounding})
        part_of(network, name).quantised = True
        rounded = by_training(network)
        part_of(network, name).quantised = False
        assert rms(expected - exact) > 3e-4, name
        assert rms(rounded - expected) < rms(expected - exact) / 20, name


@exact_sums
def test_a_pass_in_training_is_as_far_off_as_the_int8_backend(roundings: Mapping[str, Rounding]) -> None:
    """Ranges are measured before anything is rounded, and in training behind products that are: all together
    are off by as much, not by the same."""
    network = AttentionNetwork(SPEC).eval()
    exact = by_training(network)
    network.quantise()
    rounded = by_training(network)
    network.quantise(False)
    assert np.array_equal(by_training(network), exact)
    assert 0.8 < rms(rounded - exact) / rms(by_the_backend(roundings) - exact) < 1.25


def test_rounding_uses_the_same_steps() -> None:
    generator = np.random.default_rng(1)
    x = (generator.standard_normal((64, 40)) * np.geomspace(0.01, 10, 40) + 0.3).astype(np.float32)
    x[:, 7] = 0
    weights = generator.standard_normal((24, 40)).astype(np.float32)
    weights[5] = 0
    found = [part.numpy() for part in quantised(torch.from_numpy(x), torch.from_numpy(weights))]
    columns = np.abs(weights) / np.maximum(np.abs(weights).max(axis=1), 1e-12)[:, None]
    rounding = rounding_of(x.min(axis=0), x.max(axis=0), columns.max(axis=0).astype(np.float32))
    codes, scales = quantised_weights(weights / rounding.multipliers)
    assert np.allclose(found[1], codes * scales[:, None] * rounding.multipliers, rtol=1e-5, atol=1e-7)
    steps = found[0] * rounding.multipliers / rounding.scale
    assert np.allclose(steps, np.rint(steps), atol=1e-3)
    assert np.abs(steps - x * rounding.multipliers / rounding.scale).max() <= 0.501
    assert np.ptp(np.rint(steps)) == INPUT_STEPS


def test_an_input_of_zeros_stays_one() -> None:
    x, weights = quantised(torch.zeros(3, 4), torch.ones(2, 4))
    assert not x.any() and torch.allclose(weights, torch.ones(2, 4))


def test_gradients_pass_as_if_nothing_were_rounded() -> None:
    weights = torch.randn(4, 6, requires_grad=True)
    x = torch.randn(3, 6, requires_grad=True)
    rounded_x, rounded_weights = quantised(x, weights)
    (rounded_x @ rounded_weights.t()).sum().backward()
    assert weights.grad is not None and x.grad is not None
    assert torch.allclose(weights.grad, rounded_x.detach().sum(0).expand(4, 6))
    assert torch.allclose(x.grad, rounded_weights.detach().sum(0).expand(3, 6))

"""The network that precision=fp8 computes: what of it is rounded, and that its scales hold what comes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evaluator.backends import reference
from evaluator.backends.batches import expand_planes
from evaluator.backends.probe import probe_batch
from evaluator.gpu.plan.fp8 import rounded_network
from evaluator.network import NetworkSpec
from evaluator.network.arithmetic import Array
from evaluator.network.e4m3 import LARGEST, E4m3Inputs
from evaluator.network.random_network import SHAPES, NetworkShape, random_network
from evaluator.network.spec import Activation, AttentionBody, Dense, EncoderLayer

SHAPE = NetworkShape(64, layers=2, ffn=96, dense_embedding=16, smolgen=(8, 32, 16), policy_width=48)


def encoders(network: NetworkSpec) -> tuple[EncoderLayer, ...]:
    assert isinstance(network.body, AttentionBody)
    return network.body.encoders


def products(layer: EncoderLayer) -> dict[str, Dense]:
    attention, ffn = layer.attention, layer.ffn
    return {
        "q": attention.q,
        "k": attention.k,
        "v": attention.v,
        "output": attention.output,
        "dense1": ffn.dense1,
        "dense2": ffn.dense2,
    }


def test_the_products_of_encoders_and_nothing_else_are_rounded() -> None:
    network = random_network(SHAPE, seed=1)
    rounded = rounded_network(network)
    for before, after in zip(encoders(network), encoders(rounded), strict=True):
        for name, layer in products(after).items():
            assert layer.inputs is not None, name
            own = products(before)[name]
            assert not np.array_equal(layer.weights, own.weights)
            assert np.abs(layer.weights - own.weights).max() <= np.abs(own.weights).max() / 16
            assert np.array_equal(layer.biases, own.biases)
        assert after.attention.smolgen is before.attention.smolgen
        assert (after.norm1, after.norm2) == (before.norm1, before.norm2)
        # They are one product with one scale.
        assert after.attention.q.inputs == after.attention.k.inputs == after.attention.v.inputs
    assert rounded.policy is network.policy
    assert rounded.value is network.value
    residual = random_network("resnet-64x4")
    assert rounded_network(residual) is residual


def test_attention_behind_no_norm_is_left_alone() -> None:
    first, second = encoders(rounded_network(random_network(replace(SHAPE, dense_embedding=0))))
    assert {name for name, layer in products(first).items() if layer.inputs} == {"dense1", "dense2"}
    assert all(layer.inputs for layer in products(second).values())


def test_layers_without_whole_chunks_of_inputs_are_left_alone() -> None:
    layers = encoders(rounded_network(random_network(replace(SHAPE, ffn=88))))
    assert {name for name, layer in products(layers[1]).items() if not layer.inputs} == {"dense2"}


@pytest.mark.parametrize("activation", [Activation.MISH, Activation.RELU_SQUARED])
def test_scales_hold_what_comes_and_leave_its_digits(
    activation: Activation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing saturates, and what counts lies above e4m3's subnormal numbers."""
    network = rounded_network(random_network(replace(SHAPE, ffn_activation=activation), seed=1))
    seen: list[Array] = []
    original = E4m3Inputs.rounded

    def noted(inputs: E4m3Inputs, x: Array) -> Array:
        seen.append(x * inputs.scale)
        return original(inputs, x)

    monkeypatch.setattr(E4m3Inputs, "rounded", noted)
    reference.forward(network, expand_planes(probe_batch(4, seed=2).positions))
    assert len(seen) == 2 * 6
    for scaled in seen:
        assert np.abs(scaled).max() <= LARGEST
        assert np.sqrt(np.square(scaled).mean()) >= 2.0**-6


def test_large_shapes_keep_the_digits_of_their_norms() -> None:
    """A norm of 1024 elements may make 32; what is usual is 1."""
    shape = replace(SHAPES["bt4"], layers=1)
    for layer in encoders(rounded_network(random_network(shape))):
        for name, part in products(layer).items():
            assert part.inputs is not None
            if name in ("q", "dense1"):
                assert part.inputs.scale >= 1

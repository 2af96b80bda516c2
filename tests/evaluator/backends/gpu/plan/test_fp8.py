# SPDX-License-Identifier: GPL-3.0-or-later
"""precision=fp8: what of a network is rounded, that scales hold what comes, the plans made of it,
and who is refused it."""

from dataclasses import replace

import numpy as np
import pytest

from evaluator.backends import BackendError
from evaluator.backends.common.batches import expand_planes
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import open as open_gpu
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.backends.gpu.options import formats, fp8_network
from evaluator.backends.gpu.plan.fp8 import rounded_network
from evaluator.backends.gpu.plan.hopper import FUSED_POSITIONS
from evaluator.backends.gpu.plan.layers import PackedLayers
from evaluator.backends.gpu.plan.plan import FP8_POSITIONS, Plan
from evaluator.backends.gpu.plan.products.linear_layer import E4m3Scales
from evaluator.backends.gpu.plan.program import Launch
from evaluator.backends.gpu.plan.tiles import candidates, model_chooser
from evaluator.backends.reference import backend as reference
from evaluator.network import NetworkSpec
from evaluator.network.arithmetic import Array
from evaluator.network.e4m3 import LARGEST, E4m3Inputs, decoded
from evaluator.network.random_network import SHAPES, NetworkShape, random_network
from evaluator.network.spec import Activation, AttentionBody, Dense, EncoderLayer
from scripts.spills import target_named

SHAPE = NetworkShape(64, layers=2, ffn=96, dense_embedding=16, smolgen=(8, 32, 16), policy_width=48)


def encoders(network: NetworkSpec) -> tuple[EncoderLayer, ...]:
    assert isinstance(network.body, AttentionBody)
    return network.body.encoders


def products(layer: EncoderLayer) -> dict[str, Dense]:
    parts: dict[str, Dense] = {name: getattr(layer.attention, name) for name in ("q", "k", "v", "output")}
    return parts | {name: getattr(layer.ffn, name) for name in ("dense1", "dense2")}


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
def test_scales_hold_what_comes_and_digits(activation: Activation, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.integration
def test_large_shapes_keep_the_digits_of_their_norms() -> None:
    """A norm of 1024 elements may make 32; what is usual is 1."""
    shape = replace(SHAPES["bt4"], layers=1)
    for layer in encoders(rounded_network(random_network(shape))):
        for name, part in products(layer).items():
            assert isinstance(part.inputs, E4m3Inputs)
            if name in ("q", "dense1"):
                assert part.inputs.scale >= 1


# -- plans ---------------------------------------------------------------------------------------------

HOPPER = nvidia_target(9, 0)


def launches(target: Target, positions: int, network: NetworkSpec) -> list[Launch]:
    choose = model_chooser(target, Precision.FP16, 132)
    plan = Plan(network, target, Precision.FP16, choose, rounded=rounded_network(network))
    return [step for step in plan.program(positions).steps if isinstance(step, Launch)]


def with_flag(found: list[Launch], flag: str) -> set[str]:
    return {step.label for step in found if dict(step.kernel.constants).get(flag)}


def formats_of(found: list[Launch]) -> set[int]:
    constants = [dict(step.kernel.constants) for step in found]
    return {each.get(flag, 0) for each in constants for flag in ("FORMAT", "ROUND")}


@pytest.mark.parametrize(
    "target", [HOPPER, nvidia_target(8, 9), *map(amd_target, ("gfx942", "gfx950", "gfx1200"))]
)
def test_large_batches_multiply_the_encoders_in_8_bits(target: Target) -> None:
    found = launches(target, FP8_POSITIONS, random_network(SHAPE))
    layers = ("qkv", "output", "ffn1", "ffn2")
    wanted = {f"encoder{index}.{layer}.e4m3" for index in (0, 1) for layer in layers}
    assert with_flag(found, "FORMAT") == wanted
    assert formats_of(found) == {0, 1}
    # Norms but the last one, attention and ffn1 leave inputs for them.
    writing = with_flag(found, "ROUND")
    assert {label.removesuffix(", rows").removesuffix(".e4m3") for label in writing} == {
        "tail.dense2",
        *(f"encoder{index}.{what}" for index in (0, 1) for what in ("attention", "output", "ffn1")),
        "encoder0.ffn2",
    }


def test_attention_and_its_product_are_one_kernel_in_8_bits_too() -> None:
    network = random_network(replace(SHAPE, heads=2))
    found = launches(HOPPER, FUSED_POSITIONS, network)
    fused = [step for step in found if step.kernel.file == "attention_hopper"]
    assert len(fused) == 2
    assert {dict(step.kernel.constants)["FORMAT"] for step in fused} == {1}


def test_small_batches_compute_the_network_as_it_is() -> None:
    found = launches(HOPPER, FP8_POSITIONS - 1, random_network(SHAPE))
    assert not with_flag(found, "FORMAT") | with_flag(found, "ROUND")


def test_packed_weights_are_the_codes_of_the_rounded_ones() -> None:
    network = rounded_network(random_network(SHAPE, seed=2))
    layer = encoders(network)[0]
    packed = PackedLayers(Precision.FP16, {}).qkv("encoder0", layer.attention)
    scales = packed.eight
    assert isinstance(scales, E4m3Scales)
    assert isinstance(layer.attention.q.inputs, E4m3Inputs)
    found = decoded(packed.weights.view(np.uint8)) * scales.sums * layer.attention.q.inputs.scale
    parts = (layer.attention.q, layer.attention.k, layer.attention.v)
    assert np.array_equal(found, np.concatenate([part.weights for part in parts]))
    depth = len(layer.attention.q.biases) // layer.attention.heads
    assert scales.first_sums == pytest.approx(scales.sums * depth**-0.5)
    # gfx942's codes mean half as much, in both operands.
    assert scales.of(amd_target("gfx942"))[0] == 4 * scales.sums
    assert scales.of(HOPPER)[0] == scales.sums


# -- the option ----------------------------------------------------------------------------------------


def test_the_option_is_a_precision() -> None:
    chosen = formats("fp8", "")
    assert (chosen.stored, chosen.fp8, str(chosen)) == (
        Precision.FP16,
        FP8_POSITIONS,
        f"fp8 from {FP8_POSITIONS} positions",
    )
    with pytest.raises(BackendError, match="not with fp8"):
        formats("fp8", "int8")
    with pytest.raises(BackendError, match="precision=fp8"):
        open_gpu(random_network("tiny-attention"), precision="fp8", deterministic=True)
    assert not formats("fp16", "int8").fp8
    with pytest.raises(BackendError, match="fp16, bf16, fp32, fp8"):
        formats("int8", "")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gfx1100", "has no e4m3"),
        ("gfx908", "has no e4m3"),
        ("gfx90a", "has no e4m3"),
        ("gfx906", "no matrix unit"),
        ("sm_86", "has no e4m3"),
    ],
)
def test_targets_that_gain_nothing_refuse_with_a_reason(name: str, reason: str) -> None:
    with pytest.raises(BackendError, match=rf"{name}: .*{reason}"):
        fp8_network(random_network("tiny-attention"), target_named(name))


def test_fp8_needs_encoders_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BackendError, match="for attention networks"):
        fp8_network(random_network("resnet-64x4"), HOPPER)
    formats("fp8", "")
    assert "verify --precision" in caplog.text


@pytest.mark.parametrize(("k", "direct"), [(512, 64), (192, 32), (200, 0)])
def test_tiles_of_gfx950_have_steps_of_a_whole_product(k: int, direct: int) -> None:
    """Weights as fragments need pairs of whole steps. Where those of 64 are not whole, steps of 32 may be."""
    product = Product(1024, 512, k, Activation.NONE, e4m3=True)
    found = [each.tile for each in candidates(product, amd_target("gfx950"), Precision.FP16) if each.tile]
    assert all(tile.block_k >= 64 for tile in found if not tile.direct)
    assert {tile.block_k for tile in found if tile.direct} == ({direct} if direct else set())
    other = candidates(product, amd_target("gfx942"), Precision.FP16)
    assert min(each.tile.block_k for each in other if each.tile) == 32

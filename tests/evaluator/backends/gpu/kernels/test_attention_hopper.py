# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel that makes q, k and v and attends with them: who gets it, its boxes, its results."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.backends.gpu.opening import OpenNetwork, Wanted
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.hopper import FUSED_POSITIONS, AttentionTile, attention_tile
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.products.tensor_maps import heads_map
from evaluator.backends.gpu.plan.program import Buffer, Launch, Matrix, Program, Space
from evaluator.backends.gpu.plan.steps import projected_attention
from evaluator.backends.gpu.plan.tiles import model_chooser
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.spec import Activation
from tests.evaluator.backends.gpu.run.on_device import result_of, widened

HOPPER = nvidia_target(9, 0)
SHAPE = NetworkShape(64, layers=2, heads=2, ffn=48, smolgen=(4, 16, 8), policy_width=32, value_channels=8)


def program(
    shape: NetworkShape, target: Target, precision: Precision, positions: int, **more: Any
) -> Program:
    choose = model_chooser(target, precision, 132)
    return Plan(random_network(shape), target, precision, choose, **more).program(positions)


def attention_kernels(program: Program) -> list[str]:
    launches = [step for step in program.steps if isinstance(step, Launch)]
    return [launch.kernel.file for launch in launches if launch.label.endswith(".attention")]


@pytest.mark.parametrize("smolgen", [None, (4, 16, 8)])
def test_large_batches_of_heads_of_32_get_it_on_hopper(smolgen: tuple[int, int, int] | None) -> None:
    shape = replace(SHAPE, smolgen=smolgen)
    for precision in (Precision.FP16, Precision.BF16):
        many = program(shape, HOPPER, precision, FUSED_POSITIONS)
        assert attention_kernels(many) == 2 * ["attention_hopper"]
        labels = [step.label for step in many.steps if isinstance(step, Launch)]
        assert not any(label.endswith((".qkv", ".qkv_compress")) for label in labels)
        few = program(shape, HOPPER, precision, FUSED_POSITIONS - 1)
        assert attention_kernels(few) == 2 * ["attention"]


def test_nothing_else_gets_it() -> None:
    many = FUSED_POSITIONS
    for target in (nvidia_target(8, 0), nvidia_target(10, 0), amd_target("gfx942")):
        assert attention_kernels(program(SHAPE, target, Precision.FP16, many)) == 2 * ["attention"]
    assert attention_kernels(program(SHAPE, HOPPER, Precision.FP32, many)) == 2 * ["attention"]
    for heads in (1, 4):
        other = program(replace(SHAPE, heads=heads), HOPPER, Precision.FP16, many)
        assert attention_kernels(other) == 2 * ["attention"]


def test_hopper_attention_is_unused_when_deterministic() -> None:
    found = program(SHAPE, HOPPER, Precision.FP16, FUSED_POSITIONS, fused=False)
    assert attention_kernels(found) == 2 * ["attention"]


def test_a_block_fits_and_the_grid_covers_every_position_and_head() -> None:
    tile = attention_tile(FUSED_POSITIONS, 32, HOPPER, Precision.FP16)
    assert tile is not None
    assert tile.shared_bytes <= HOPPER.shared_bytes
    for positions, heads in ((1, 1), (5, 3), (256, 32)):
        blocks = tile.blocks(64 * positions, heads)
        assert blocks % tile.cluster == 0
        assert blocks * 4 >= positions * heads


def test_box_of_weights_holds_q_k_and_v_per_head() -> None:
    heads, k = 6, 16
    tensor = heads_map(Buffer(Space.WEIGHTS, "w"), heads, k, Precision.FP16).box
    assert np.prod(tensor.sizes) == 3 * heads * 32 * k
    weights = np.arange(3 * heads * 32 * k, dtype=np.uint16)
    view = np.lib.stride_tricks.as_strided(weights, tensor.sizes[::-1], (2, *tensor.strides)[::-1])
    box = view[2:4].reshape(-1, k)[:, 0] // k  # rows of the weights, of heads 2 and 3
    first = [part * heads * 32 + head * 32 for head in (2, 3) for part in range(3)]
    assert list(box) == [row + i for row in first for i in range(32)]
    assert np.prod(tensor.shape[1:]) == len(box)


# -- on the device -------------------------------------------------------------------------------------

SIZES = [(1, 1, 64), (7, 5, 200), (64, 8, 256), (203, 33, 136), (301, 24, 768), (300, 32, 1024)]
"""Positions, heads and k: odd ones, and more than one tile for a block."""


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
@pytest.mark.parametrize("smolgen", [False, True])
@pytest.mark.parametrize("tile", [AttentionTile(), AttentionTile(cluster_m=1)], ids=["2x1", "1x1"])
def test_attention(hopper_device: Any, tile: AttentionTile, smolgen: bool, precision: Precision) -> None:
    for positions, heads, k in SIZES:
        check(hopper_device, tile, precision, positions, heads, k, smolgen=smolgen)


def check(
    device: Any,
    tile: AttentionTile,
    precision: Precision,
    positions: int,
    heads: int,
    k: int,
    *,
    smolgen: bool,
) -> None:
    """Compare with float64 on the same rounded inputs."""
    rng = np.random.default_rng(positions + heads + k)
    a = pack.stored(rng.standard_normal((64 * positions, k), np.float32), precision)
    weights = rng.standard_normal((3, heads, 32, k), np.float32) * np.float32(k**-0.5)
    weights[0] *= np.float32(32**-0.5)
    w = pack.stored(weights.reshape(-1, k), precision)
    biases = rng.standard_normal(3 * heads * 32).astype(np.float32)
    some = rng.standard_normal((min(positions, 31), heads, 64, 64), np.float32) * np.float32(2)
    logits = np.resize(pack.stored(some, precision), (positions, heads, 64, 64))
    builder = ProgramBuilder(positions, device.info.target, precision, model_chooser(HOPPER, precision, 132))
    projected_attention(
        builder,
        Linear("qkv", 3 * heads * 32, w, biases, Activation.NONE),
        Matrix(Buffer(Space.WORK, "a"), 64 * positions, k, k),
        heads,
        Matrix(Buffer(Space.WORK, "logits"), positions * heads, 4096, 4096) if smolgen else None,
        "attention",
        tile,
    )
    shape = (64 * positions, 32 * heads)
    raw = result_of(device, builder.program, {"a": a, "logits": logits}, "attention", shape)
    for position in {0, positions // 2, positions - 1}:
        rows = slice(64 * position, 64 * position + 64)
        products = widened(a[rows], precision) @ widened(w, precision).T + biases
        bias = widened(logits[position], precision) if smolgen else np.zeros((heads, 64, 64))
        expected = attention(products, bias)
        found = widened(raw[rows], precision)
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert error < (1e-3 if precision is Precision.FP16 else 8e-3), (positions, heads, k, position)


def attention(products: NDArray[np.float64], bias: NDArray[np.float64]) -> NDArray[np.float64]:
    """[64, 3 * heads * 32] and [heads, 64, 64] -> [64, heads * 32]."""
    q, k, v = products.reshape(64, 3, -1, 32).transpose(1, 2, 0, 3)
    weights = np.exp(q @ k.transpose(0, 2, 1) + bias)
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).transpose(1, 0, 2).reshape(64, -1)


@pytest.mark.gpu
@pytest.mark.parametrize("smolgen", [None, (4, 16, 8)])
def test_a_network_with_it(hopper_device: Any, smolgen: tuple[int, int, int] | None) -> None:
    network = random_network(replace(SHAPE, smolgen=smolgen))
    batch = probe_batch(FUSED_POSITIONS + 3, seed=4)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    backend = GpuBackend(OpenNetwork(network, hopper_device, Wanted(buckets=(FUSED_POSITIONS + 5,))))
    result = backend.evaluate(batch)
    backend.executor.close()
    assert np.abs(result.logits - expected.logits).max() < backend.tolerance.logits
    assert np.abs(result.wdl - expected.wdl).max() < backend.tolerance.wdl

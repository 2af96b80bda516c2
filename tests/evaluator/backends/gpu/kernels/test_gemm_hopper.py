# SPDX-License-Identifier: GPL-3.0-or-later
"""The product kernel for Hopper: whom it is offered to, what it asks of the copy engine, and its results."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import DeviceInfo
from evaluator.backends.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.backends.gpu.plan import hopper
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.hopper import HopperTile
from evaluator.backends.gpu.plan.products.epilogue import After
from evaluator.backends.gpu.plan.products.launches import linear
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.products.tensor_maps import weights_map
from evaluator.backends.gpu.plan.program import Buffer, Matrix, Space
from evaluator.backends.gpu.plan.tiles import Choice
from evaluator.backends.gpu.run.buckets import BUCKETS, usual_buckets
from evaluator.network.arithmetic import activate
from evaluator.network.spec import Activation, LayerNorm
from tests.evaluator.backends.gpu.run.on_device import result_of, widened

PRODUCT = Product(4096, 1024, 768, Activation.MISH, residual=True, followed=True, normalised=True)
HOPPER = nvidia_target(9, 0)


def test_hopper_gemm_is_offered_only_for_many_half_rows() -> None:
    assert hopper.candidates(PRODUCT, HOPPER, Precision.FP16)
    assert hopper.candidates(PRODUCT, HOPPER, Precision.BF16)
    assert not hopper.candidates(PRODUCT, HOPPER, Precision.FP32)
    for target in (nvidia_target(8, 0), nvidia_target(10, 0), nvidia_target(12, 0), amd_target("gfx942")):
        assert not hopper.candidates(PRODUCT, target, Precision.FP16)
    for other in (
        replace(PRODUCT, m=64),
        replace(PRODUCT, n=1000),
        replace(PRODUCT, k=300),
        replace(PRODUCT, k=192),
        replace(PRODUCT, convolution=True),
        replace(PRODUCT, bias_by_square=True),
        replace(PRODUCT, segment=32),
    ):
        assert not hopper.candidates(other, HOPPER, Precision.FP16)


@pytest.mark.parametrize("width", [256, 512, 640, 768, 1024, 1100, 2048])
def test_a_norm_is_taken_in_where_a_cluster_owns_whole_rows(width: int) -> None:
    product = replace(PRODUCT, n=width)
    normalising = [tile for tile in hopper.candidates(product, HOPPER, Precision.FP16) if tile.normalise]
    assert bool(normalising) == (width <= 1024 or width == 2048)
    for tile in normalising:
        assert tile.block_n * max(tile.cluster_n, tile.row_blocks) == width
        assert tile.cluster <= 8
    for tile in hopper.candidates(replace(product, normalised=False), HOPPER, Precision.FP16):
        assert not tile.normalise
        assert tile.shared_bytes <= HOPPER.shared_bytes


def test_box_of_weights_gives_a_thread_8_columns() -> None:
    n, k, block_n = 96, 16, 64
    box = weights_map(Buffer(Space.WEIGHTS, "w"), n, k, block_n, Precision.FP16).box
    assert np.prod(box.sizes) == n * k
    weights = np.arange(n * k, dtype=np.uint16)
    strides = (2, *box.strides)[::-1]
    view = np.lib.stride_tricks.as_strided(weights, box.sizes[::-1], strides)
    second = view[2:3].reshape(32, k)[:, 0] // k  # the rows of the box's last 32 places
    place = np.arange(32)
    assert list(second) == list(64 + 8 * (place // 2 % 4) + 2 * (place // 8) + place % 2)
    assert box.shape[0] == 64
    assert np.prod(box.shape[1:]) == block_n


@pytest.mark.parametrize("rows", [1, 128, 129, 4096])
def test_the_grid_covers_every_row_in_whole_clusters(rows: int) -> None:
    for tile in (HopperTile(256, 4), HopperTile(128, 6, cluster_m=2), HopperTile(256, 4, cluster_n=4)):
        blocks = tile.blocks(rows, 768)
        assert blocks % tile.cluster == 0
        assert blocks * 128 * tile.block_n >= rows * 768


@pytest.mark.parametrize(
    ("target", "processors", "sizes"),
    [
        (HOPPER, 132, (264, 396, 528, 792, 1056)),
        (HOPPER, 114, (256, 384, 512, 798, 1026)),
        (HOPPER, 16, (256, 384, 512, 768, 1024)),
        (nvidia_target(8, 0), 108, (256, 384, 512, 768, 1024)),
        (amd_target("gfx942"), 304, (256, 384, 512, 768, 1024)),
    ],
)
def test_large_batches_fill_the_processors(target: Target, processors: int, sizes: tuple[int, ...]) -> None:
    info = DeviceInfo("", 0, "", target, 0, processors, "", False)
    assert usual_buckets(info) == (*(size for size in BUCKETS if size < 256), *sizes)
    assert usual_buckets(info, 300) == (*(size for size in BUCKETS if size < 256), sizes[0], 300)


# -- on the device -------------------------------------------------------------------------------------

TILES = [
    HopperTile(256, 4),
    HopperTile(256, 4, cluster_m=2),
    HopperTile(128, 6, cluster_m=2),
    HopperTile(128, 6, cluster_n=2),
]

NORMALISING = [
    HopperTile(256, 4, 1, 4, normalise=True),
    HopperTile(256, 4, 1, 3, normalise=True),
    HopperTile(128, 5, 1, 8, normalise=True),
    HopperTile(256, 4, 1, 1, normalise=True),
    HopperTile(256, 4, 1, 2, normalise=True, row_blocks=4),
    HopperTile(256, 4, 1, 1, normalise=True, row_blocks=3),
]


@pytest.mark.gpu
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_products(hopper_device: Any, tile: HopperTile) -> None:
    for m, n, k, residual, bias in (
        (128, 256, 256, False, False),
        (1031, 416, 200, True, True),
        (2049, 1024, 1032, False, True),
        (40000, 320, 328, False, False),
    ):
        check(hopper_device, tile, Precision.FP16, (m, n, k), residual=residual, bias=bias)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", list(Activation))
def test_activations(hopper_device: Any, activation: Activation) -> None:
    check(hopper_device, TILES[1], Precision.BF16, (1500, 512, 264), activation, residual=True, bias=True)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16])
@pytest.mark.parametrize("tile", NORMALISING, ids=str)
def test_products_with_a_norm(hopper_device: Any, tile: HopperTile, precision: Precision) -> None:
    n = tile.block_n * max(tile.cluster_n, tile.row_blocks)
    for m, k in ((128, 256), (1031, 200), (20000, 768)):
        check(hopper_device, tile, precision, (m, n, k), residual=True, bias=True)
    check(hopper_device, tile, precision, (300, n, 264), Activation.MISH, residual=False, bias=True)


def check(
    device: Any,
    tile: HopperTile,
    precision: Precision,
    shape: tuple[int, int, int],
    activation: Activation = Activation.NONE,
    *,
    residual: bool,
    bias: bool,
) -> None:
    """Compare with float64 on the same rounded inputs; the output is poisoned before."""
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a = pack.stored(rng.standard_normal((m, k), np.float32), precision)
    w = pack.stored(rng.standard_normal((n, k), np.float32) * np.float32(k**-0.5), precision)
    b = rng.standard_normal(n).astype(np.float32) if bias else None
    skip = pack.stored(rng.standard_normal((m, n), np.float32) + np.float32(0.5), precision)
    norm = LayerNorm(
        rng.standard_normal(n).astype(np.float32), rng.standard_normal(n).astype(np.float32), 1e-3
    )
    builder = ProgramBuilder(m, device.info.target, precision, lambda _: Choice(None, hopper=tile))
    linear(
        builder,
        Linear("product", n, w, b, activation),
        Matrix(Buffer(Space.WORK, "a"), m, k, k),
        "out",
        residual=Matrix(Buffer(Space.WORK, "residual"), m, n, n) if residual else None,
        after=After(norm) if tile.normalise else None,
    )
    raw = result_of(device, builder.program, {"a": a, "residual": skip}, "out", (m, n))

    rows = np.unique(np.concatenate([np.arange(min(m, 300)), np.arange(max(0, m - 300), m)]))
    expected = widened(a[rows], precision) @ widened(w, precision).T
    if b is not None:
        expected += b
    if residual:
        expected += widened(skip[rows], precision)
    expected = activate(activation, expected)
    if tile.normalise:
        expected -= expected.mean(1, keepdims=True)
        expected /= np.sqrt(np.square(expected).mean(1, keepdims=True) + norm.epsilon)
        expected = expected * norm.gammas + norm.betas
    result = widened(raw[rows], precision)
    error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
    assert error < (1e-3 if precision is Precision.FP16 else 6e-3)
    largest = np.abs(result - expected).max() / np.abs(expected).max()
    assert largest < (2e-3 if precision is Precision.FP16 else 1.6e-2)

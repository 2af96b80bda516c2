# SPDX-License-Identifier: GPL-3.0-or-later
"""Every kernel as the machine code of every target that can be emulated, against numpy.

Products of e4m3 numbers are in test_fp8.py, norms that are left to others in test_left_norms.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import MatrixUnit, Precision, amd_target
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.products.epilogue import After
from evaluator.backends.gpu.plan.products.launches import linear
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.program import Matrix
from evaluator.backends.gpu.plan.quantised import WeightFormat
from evaluator.backends.gpu.plan.quantised import pack as pack_codes
from evaluator.backends.gpu.plan.quantised import rounded as rounded_to_codes
from evaluator.backends.gpu.plan.steps import attention, expand, outputs, policy_of_products, squeeze_excite
from evaluator.backends.gpu.plan.tiles import candidates
from evaluator.network import e4m3
from evaluator.network.spec import Activation, Dense, Gating, LayerNorm, SEUnit
from protocol.batch import POLICY_SIZE, POSITION_DTYPE
from tests.emulator.instructions import TARGETS
from tests.emulator.steps import (
    assert_close,
    assert_rounded,
    builder,
    elements,
    matrix_of,
    normal,
    rounded,
    run,
)

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(900)]

both = pytest.mark.parametrize(
    ("device", "precision"),
    [(target, precision) for target in TARGETS for precision in (Precision.FP16, Precision.FP32)],
    indirect=["device"],
)
every = pytest.mark.parametrize(
    ("device", "precision"),
    [
        (target, precision)
        for target in TARGETS
        for precision in Precision
        if (target, precision) != ("gfx90a", Precision.BF16)  # the emulator lacks its bf16 MFMA
    ],
    indirect=["device"],
)


@every
def test_matrix_products_with_every_tile(device: Gpu, precision: Precision) -> None:
    m, width, k = 72, 70, 328  # no whole tiles
    stride = pack.round_up(k, precision.chunk)
    a, b, biases = normal(m, k), normal(width, k, seed=2), normal(width, seed=3)
    a, b = rounded(a, precision), rounded(b, precision)
    expected = np.maximum(a @ b.T + biases, 0)
    product = Product(m, pack.round_up(width, precision.chunk), stride, Activation.RELU)
    choices = candidates(product, device.info.target, precision)
    assert {choice.splits for choice in choices} >= {1, 2}
    tried = set()
    for choice in choices:
        if (choice.tile, choice.splits > 1) in tried:
            continue
        tried.add((choice.tile, choice.splits > 1))
        made = builder(device, precision, choice=choice)
        packed = pack.matrix(b, precision), pack.vector(biases, precision)
        layer = Linear("layer", width, *packed, Activation.RELU)
        source = made.matrix("a", m, k)
        out = linear(made, layer, source, "out")
        memory = run(device, made.program, {"a": elements(a, stride, precision)})
        assert_close(matrix_of(memory, out, precision), expected, precision, k)


@every
def test_products_in_whole_steps(device: Gpu, precision: Precision) -> None:
    """With the tiles of large batches, among them those that take the weights as fragments."""
    m, width, k, target = 72, 70, 384, device.info.target
    a, b = rounded(normal(m, k), precision), rounded(normal(width, k, seed=2), precision)
    product = Product(m, pack.round_up(width, precision.chunk), k, Activation.NONE)
    choices = [each for each in candidates(product, target, precision) if each.splits == 1]
    tiles = {each.tile: each for each in choices if each.tile is not None and each.tile.warps_k == 1}
    largest = max(tile.block_m for tile in tiles)
    for tile, choice in tiles.items():
        if tile.block_m < min(largest, 128) and not tile.direct:
            continue
        made = builder(device, precision, choice=choice)
        layer = Linear("layer", width, pack.matrix(b, precision), None, Activation.NONE)
        out = linear(made, layer, made.matrix("a", m, k), "out")
        memory = run(device, made.program, {"a": elements(a, k, precision)})
        assert_close(matrix_of(memory, out, precision), a @ b.T, precision, k)


@pytest.mark.parametrize("form", WeightFormat)
@pytest.mark.parametrize("device", TARGETS, indirect=True)
def test_products_with_weights_of_few_bits(device: Gpu, form: WeightFormat) -> None:
    m, width, k = 72, 88, 320
    precision, target = Precision.FP16, device.info.target
    a, b = rounded(normal(m, k), precision), rounded_to_codes(normal(width, k, seed=2), form)
    halves = pack.matrix(b, precision)
    packed = pack_codes(halves, form, target.matrix_unit(precision))
    assert packed is not None
    layer = Linear("layer", width, halves, None, Activation.NONE, packed=packed)
    product = Product(m, width, k, Activation.NONE, weight_bits=form.bits)
    tried = set()
    for choice in candidates(product, target, precision, packed=True):
        if choice.tile in tried:
            continue
        tried.add(choice.tile)
        made = builder(device, precision, choice=choice)
        out = linear(made, layer, made.matrix("a", m, k), "out")
        memory = run(device, made.program, {"a": elements(a, k, precision)})
        # The weights themselves are rounded to halves, too.
        assert_close(matrix_of(memory, out, precision), a @ b.T, precision, k)


@pytest.mark.parametrize(
    "device",
    [target for target in TARGETS if target == "gfx90a" or amd_target(target).unit is not MatrixUnit.MFMA],
    indirect=True,
)
def test_subnormal_operands(device: Gpu) -> None:
    """Every target multiplies them but gfx90a, whose matrix unit takes them as zero. (So does the emulator's
    for gfx908, gfx942 and gfx950; that of the hardware does not.)"""
    precision, k = Precision.FP16, 64
    tiny = np.float32(2.0**-17)
    a, b = rounded(normal(16, k) * tiny, precision), rounded(normal(16, k, seed=2), precision)
    made = builder(device, precision)
    layer = Linear("layer", 16, pack.matrix(b * np.float32(2.0**10), precision), None, Activation.NONE)
    out = linear(made, layer, made.matrix("a", 16, k), "out")
    memory = run(device, made.program, {"a": elements(a, k, precision)})
    result, expected = matrix_of(memory, out, precision), a @ b.T * np.float32(2.0**10)
    if device.info.target.name == "gfx90a":
        flushed = np.where(np.abs(a) < 2.0**-14, np.float32(0), a) @ b.T * np.float32(2.0**10)
        assert np.abs(flushed - expected).max() > 0.01
        expected = flushed
    assert_close(result, expected, precision, k)


@both
def test_a_product_with_a_residual_by_square_and_a_segment(device: Gpu, precision: Precision) -> None:
    board, skip = rounded(normal(128, 48), precision), rounded(normal(128, 40, seed=2), precision)
    weights, biases = rounded(normal(40, 48, seed=3), precision), normal(64, 40, seed=4)
    made = builder(device, precision)
    layer = Linear("layer", 40, pack.matrix(weights, precision), biases, Activation.MISH)
    a, residual = made.matrix("a", 128, 48), made.matrix("skip", 128, 40)
    out = linear(made, layer, a, "out", residual=residual)
    # Of each square 16 elements from the 16th on, as one row of a whole board.
    flat = rounded(normal(24, 64 * 16, seed=5), precision)
    vector = Matrix(a.buffer, 2, 64 * 16, 48, segment=16, offset=16)
    short = Linear("short", 24, pack.matrix(flat, precision), None, Activation.NONE)
    taken = linear(made, short, vector, "taken")
    memory = run(
        device, made.program, {"a": elements(board, 48, precision), "skip": elements(skip, 40, precision)}
    )
    x = board @ weights.T + np.tile(biases, (2, 1)) + skip
    expected = x * np.tanh(np.log1p(np.exp(x)))
    assert_close(matrix_of(memory, out, precision), expected, precision, 48)
    expected = board[:, 16:32].reshape(2, -1) @ flat.T
    assert_close(matrix_of(memory, taken, precision), expected, precision, 64 * 16)


@both
def test_convolution_and_squeeze_and_excitation(device: Gpu, precision: Precision) -> None:
    channels, hidden = 20, 6
    board = rounded(normal(128, channels), precision)
    weights, biases = rounded(normal(channels, channels, 3, 3, seed=2), precision), normal(channels, seed=3)
    unit = SEUnit(
        Dense(normal(hidden, channels, seed=4), normal(hidden, seed=5), Activation.RELU),
        Dense(normal(2 * channels, hidden, seed=6), normal(2 * channels, seed=7)),
    )
    made = builder(device, precision)
    a = made.matrix("a", 128, channels)
    packed = pack.convolution(weights, precision), pack.vector(biases, precision)
    y = linear(made, Linear("convolution", channels, *packed, Activation.NONE, convolution=True), a, "y")
    out = squeeze_excite(made, unit, y, a, Activation.RELU, "out", "se")
    memory = run(device, made.program, {"a": elements(board, a.stride, precision)})

    squares = np.pad(board.reshape(2, 8, 8, channels), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [squares[:, i : i + 8, j : j + 8] @ weights[:, :, i, j].T for i in range(3) for j in range(3)]
    expected = np.sum(taps, axis=0).reshape(128, channels)
    convolved = matrix_of(memory, y, precision)
    assert_close(convolved, expected + biases, precision, 9 * channels)
    means = convolved.reshape(2, 64, channels).mean(axis=1)
    z = np.maximum(means @ unit.squeeze.weights.T + unit.squeeze.biases, 0)
    z = (z @ unit.excite.weights.T + unit.excite.biases).repeat(64, axis=0)
    expected = np.maximum(convolved / (1 + np.exp(-z[:, :channels])) + z[:, channels:] + board, 0)
    assert_close(matrix_of(memory, out, precision), expected, precision, 9 * channels)


@every
@pytest.mark.parametrize("depth", [16, 64])
@pytest.mark.parametrize("biased", [False, True])
def test_attention(device: Gpu, precision: Precision, depth: int, biased: bool) -> None:
    heads, positions = 2, 2
    width = 3 * heads * depth
    qkv = rounded(normal(64 * positions, width) / depth**0.25, precision)
    bias = rounded(normal(positions * heads, 4096, seed=2), precision)
    made = builder(device, precision, positions)
    board = made.matrix("qkv", 64 * positions, width)
    added = made.matrix("bias", positions * heads, 4096) if biased else None
    out = attention(made, board, heads, depth, added, "attention")
    inputs = {"qkv": elements(qkv, width, precision)} | (
        {"bias": elements(bias, 4096, precision)} if biased else {}
    )
    pairs = None
    if precision is Precision.FP16 and device.info.target.e4m3:
        into = e4m3.E4m3Inputs(64.0)
        pairs = attention(made, board, heads, depth, added, "attention", into)
    memory = run(device, made.program, inputs)

    q, k, v = qkv.reshape(positions, 64, 3, heads, depth).transpose(2, 0, 3, 1, 4)
    logits = q @ k.transpose(0, 1, 3, 2) + (bias.reshape(positions, heads, 64, 64) if biased else 0)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    expected = weights / weights.sum(axis=-1, keepdims=True) @ v
    expected = expected.transpose(0, 2, 1, 3).reshape(64 * positions, heads * depth)
    assert_close(matrix_of(memory, out, precision), expected, precision, 16)
    if pairs is not None:
        assert_rounded(memory, pairs, device, matrix_of(memory, out, precision))


@both
@pytest.mark.parametrize("width", [36, 2100])
def test_rows(device: Gpu, precision: Precision, width: int) -> None:
    """Layer norm and gates behind a product that is split along k: partial sums, bias and residual."""
    norm = LayerNorm(normal(width, seed=2), normal(width, seed=3), 1e-3)
    gating = Gating(normal(64, width, seed=4), normal(64, width, seed=5))
    target = device.info.target
    k = 640
    product = Product(64, pack.round_up(width, precision.chunk), k, Activation.NONE)
    split = next(choice for choice in candidates(product, target, precision) if choice.splits == 3)
    made = builder(device, precision, 1, split)
    a, b = rounded(normal(64, k) / np.float32(16), precision), rounded(normal(width, k, seed=6), precision)
    skip, biases = rounded(normal(64, width, seed=7), precision), normal(width, seed=8)
    packed = pack.matrix(b, precision), pack.vector(biases, precision)
    layer = Linear("layer", width, *packed, Activation.SWISH)
    source, residual = made.matrix("a", 64, k), made.matrix("skip", 64, width)
    out = linear(made, layer, source, "out", residual=residual, after=After(norm, gating))
    inputs = {"a": elements(a, k, precision), "skip": elements(skip, residual.stride, precision)}
    memory = run(device, made.program, inputs)
    x = a @ b.T + biases + skip
    x = x / (1 + np.exp(-x))
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-3)
    expected = (x * norm.gammas + norm.betas) * gating.multiply + gating.add
    assert_close(matrix_of(memory, out, precision), expected, precision, 64)


@both
def test_planes_of_packed_positions(device: Gpu, precision: Precision) -> None:
    random = np.random.default_rng(1)
    positions = np.zeros(2, POSITION_DTYPE)
    positions["planes"] = random.integers(0, 1 << 63, (2, 112), np.uint64)
    positions["rule50"] = [0.25, 0.75]
    extra = rounded(normal(2, 64 * 4), precision)
    made = builder(device, precision)
    appended = made.matrix("extra", 2, 64 * 4)
    tokens = expand(made, appended=appended, pieces=False)
    pieces = expand(made, appended=None, pieces=True)
    inputs = {"positions": positions.view(np.uint8), "extra": elements(extra, 256, precision)}
    memory = run(device, made.program, inputs)
    bits = (positions["planes"][:, None, :] >> np.arange(64, dtype=np.uint64)[:, None]) & np.uint64(1)
    planes = bits.astype(np.float32)
    assert np.array_equal(matrix_of(memory, pieces, precision), planes[:, :, :12].reshape(2, 768))
    planes[:, :, 109] *= positions["rule50"][:, None] / pack.RULE50_DIVISOR
    expected = np.concatenate([planes, extra.reshape(2, 64, 4)], axis=2).reshape(128, 116)
    assert np.array_equal(matrix_of(memory, tokens, precision), expected)


@both
def test_policy_and_outputs(device: Gpu, precision: Precision) -> None:
    depth = 40
    qk = rounded(normal(128, 2 * depth), precision)
    promotion = normal(4, depth, seed=2)
    # Every move between two squares that fits, then promotions of every piece.
    source = np.arange(POLICY_SIZE, dtype=np.int32) * 2
    source[-72:] = 4096 + np.arange(72)
    moves = np.array([5, 1800, 1857, 17, 1786], np.uint16)
    value, plies = rounded(normal(2, 18, seed=3), precision), rounded(normal(2, 12, seed=4), precision)
    value_layer = Dense(normal(3, 18, seed=5), normal(3, seed=6))
    plies_layer = Dense(normal(1, 12, seed=7), normal(1, seed=8), Activation.RELU)
    made = builder(device, precision)
    policy_of_products(made, made.matrix("qk", 128, 2 * depth), promotion, source)
    outputs(made, made.matrix("value", 2, 18), value_layer, made.matrix("plies", 2, 12), plies_layer)
    chunk = precision.chunk
    memory = run(
        device,
        made.program,
        {
            "qk": elements(qk, 2 * depth, precision),
            "value": elements(value, pack.round_up(18, chunk), precision),
            "plies": elements(plies, pack.round_up(12, chunk), precision),
            "move_offsets": np.array([0, 2, 5], np.uint32),
            "moves": moves,
            "logits": np.full(5, np.nan, np.float32),
            "wdl": np.full((2, 3), np.nan, np.float32),
            "moves_left": np.full(2, np.nan, np.float32),
        },
    )
    expected = []
    for position, move in zip([0, 0, 1, 1, 1], moves, strict=True):
        q, k = qk[64 * position : 64 * position + 64].reshape(64, 2, depth).transpose(1, 0, 2)
        entry = int(source[move])
        if entry < 4096:
            expected.append(q[entry // 64] @ k[entry % 64])
        else:
            start, rest = divmod(entry - 4096, 24)
            to, piece = divmod(rest, 3)
            expected.append((q[48 + start] + promotion[piece] + promotion[3]) @ k[56 + to])
    logits = memory["logits"].view(np.float32)
    assert_close(logits, np.array(expected, np.float32), Precision.FP32, depth)
    x = value @ value_layer.weights.T + value_layer.biases
    wdl = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    assert_close(memory["wdl"].view(np.float32).reshape(2, 3), wdl, Precision.FP32, 18)
    expected_plies = np.maximum(plies @ plies_layer.weights.T + plies_layer.biases, 0)[:, 0]
    assert_close(memory["moves_left"].view(np.float32), expected_plies, Precision.FP32, 12)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The operations of a plan except matrix products (products/). Each function appends the launches of one
fused step to a program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.plan.builder import ACTIVATION_CODES, Geometry, ProgramBuilder
from evaluator.backends.gpu.plan.hopper import HEAD_DEPTH, AttentionTile
from evaluator.backends.gpu.plan.products.epilogue import Epilogue, finish_rows
from evaluator.backends.gpu.plan.products.launches import rounded_inputs
from evaluator.backends.gpu.plan.products.linear_layer import Linear
from evaluator.backends.gpu.plan.products.product_use import sum_scales
from evaluator.backends.gpu.plan.products.tensor_maps import heads_map, logits_map, rows_map
from evaluator.backends.gpu.plan.program import Argument, Buffer, Matrix, PlanError
from evaluator.backends.gpu.plan.weights import RULE50_DIVISOR
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.spec import Activation, Dense, FloatArray, SEUnit

_MOST_DEPTH_AT_ONCE = 128
"""Maximum part of a head's depth that kernels/attention.hip processes at once: a lane of a 32-lane wave
without a matrix unit then holds 64 sums."""


def attention(
    b: ProgramBuilder,
    qkv: Matrix,
    heads: int,
    depth: int,
    bias: Matrix | None,
    name: str,
    rounded: E4m3Inputs | None = None,
) -> Matrix:
    """Append softmax(q k^T + bias) v. qkv: a board that begins with 3 * heads * depth elements. bias:
    [positions * heads, 4096]. rounded: inputs of the layer that reads the result, if it takes them
    rounded."""
    out = _attended(b, qkv.rows, heads * depth, rounded)
    chunk, size = b.precision.chunk, b.precision.bytes
    available = min(b.target.shared_bytes, 64 << 10)
    part = depth
    shared = 64 * (3 * (depth + chunk) + 64 + chunk) * size
    share_space = shared > available
    if share_space:
        for part in (depth, 64, 48, 32, 16):
            shared = 64 * (max(part, 64) + part + 2 * chunk) * size
            if part <= _MOST_DEPTH_AT_ONCE and depth % part == 0 and shared <= available:
                break
    b.launch(
        "attention",
        {
            "DEPTH": depth,
            "SLICE": part,
            "BIAS": int(bias is not None),
            "SHARE_SPACE": int(share_space),
            "ROUND": b.format_code(out),
        },
        Geometry((heads, b.positions, 1), 4 * b.target.wave, shared),
        (
            qkv.buffer,
            None if bias is None else bias.buffer,
            out.buffer,
            heads,
            qkv.stride,
            b.round_scale(out),
        ),
        name,
    )
    return _rounded_rows(b, out, rounded, name)


def _attended(b: ProgramBuilder, rows: int, width: int, rounded: E4m3Inputs | None) -> Matrix:
    """Return the output matrix of an attention kernel, which processes one or two heads of a row."""
    if rounded is None:
        return b.matrix("attention", rows, width)
    return b.rounded("attention", rows, width, rounded)


def _rounded_rows(b: ProgramBuilder, out: Matrix, rounded: E4m3Inputs | None, name: str) -> Matrix:
    """Return the matrix in the form of its reader's inputs, adding a pass over its rows if necessary."""
    if rounded is None or out.inputs is not None:
        return out
    pairs = b.rounded("attention", out.rows, out.width, rounded)
    finish_rows(b, name, out, None, Epilogue(), pairs)
    return pairs


def projected_attention(
    b: ProgramBuilder,
    layer: Linear,
    a: Matrix,
    heads: int,
    bias: Matrix | None,
    name: str,
    tile: AttentionTile,
    rounded: E4m3Inputs | None = None,
) -> Matrix:
    """Append `attention` of a layer's output, whose q, k and v are never written to memory. Raises PlanError
    if only one of this layer and the result's reader is in e4m3."""
    out = _attended(b, a.rows, heads * HEAD_DEPTH, rounded)
    biases, precision = layer.biases, b.precision
    assert biases is not None
    if out.inputs is not None and not layer.e4m3:
        raise PlanError(f"{name}: only what was multiplied in e4m3 is rounded to it")
    a = rounded_inputs(layer, a)
    scale, query_scale, _ = sum_scales(b, layer)
    k = layer.weights.shape[1]
    rows = rows_map(a.buffer, a.rows, k, a.stride, precision)
    b.launch(
        "attention_hopper",
        {
            "BLOCK_N": tile.block_n,
            "STAGES": tile.stages,
            "CLUSTER_M": tile.cluster_m,
            "CLUSTER_N": tile.cluster_n,
            "LOGITS": int(bias is not None),
            "FORMAT": int(layer.e4m3),
            "ROUND": b.format_code(out),
        },
        Geometry((tile.blocks(a.rows, heads), 1, 1), tile.threads, tile.shared_bytes, tile.cluster),
        (
            rows,
            heads_map(b.weight(f"{layer.name}.weights", lambda: layer.weights), heads, k, precision),
            rows if bias is None else logits_map(bias.buffer, a.rows // 64 * heads, precision),
            b.weight(f"{layer.name}.biases", lambda: biases),
            out.buffer,
            a.rows,
            k,
            heads,
            query_scale,
            scale,
            b.round_scale(out),
        ),
        name,
    )
    return _rounded_rows(b, out, rounded, name)


def expand(b: ProgramBuilder, *, appended: Matrix | None, pieces: bool) -> Matrix:
    """Append the expansion of packed positions into a board of planes followed by `appended`, or into
    [positions, 768] pieces. Weights for the planes must come from `weights.of_planes`."""
    if pieces:
        out = b.matrix("pieces", b.positions, 768)
        constants = {"STRIDE": 112, "TOKENS": 0, "PIECES": 1, "APPENDED": 0}
    else:
        extra = 0 if appended is None else appended.width // 64
        out = b.matrix("tokens", 64 * b.positions, 112 + extra)
        constants = {"STRIDE": out.stride, "TOKENS": 1, "PIECES": 0, "APPENDED": extra}
    parts = 1 if pieces else max(1, min(8, 64 // b.positions))
    b.launch(
        "expand",
        constants | {"PARTS": parts, "RULE50_DIVISOR": RULE50_DIVISOR},
        Geometry((b.positions, parts, 1), 256),
        (
            b.exchange("positions"),
            None if appended is None else appended.buffer,
            None if pieces else out.buffer,
            out.buffer if pieces else None,
        ),
        "pieces" if pieces else "tokens",
    )
    return out


def squeeze_excite(
    b: ProgramBuilder, unit: SEUnit, y: Matrix, skip: Matrix, activation: Activation, out: str, name: str
) -> Matrix:
    """Append activation(sigmoid(z[:C]) y + z[C:] + skip) with z from the mean of y."""
    result = b.matrix(out, y.rows, y.width)
    channels, hidden = y.width, len(unit.squeeze.biases)
    b.launch(
        "squeeze_excite",
        {
            "CHANNELS": channels,
            "HIDDEN": hidden,
            "STRIDE": y.stride,
            "SQUEEZE_ACTIVATION": ACTIVATION_CODES[unit.squeeze.activation],
            "ACTIVATION": ACTIVATION_CODES[activation],
        },
        Geometry((b.positions, 1, 1), 256),
        (
            y.buffer,
            skip.buffer,
            b.weight(f"{name}.squeeze", lambda: unit.squeeze.weights.T),
            b.weight(f"{name}.squeeze_bias", lambda: unit.squeeze.biases),
            b.weight(f"{name}.excite", lambda: unit.excite.weights.T),
            b.weight(f"{name}.excite_bias", lambda: unit.excite.biases),
            result.buffer,
        ),
        name,
    )
    return result


def policy_of_products(
    b: ProgramBuilder, qk: Matrix, promotion: FloatArray, source: NDArray[np.int32]
) -> None:
    """Append the logits of the legal moves of an attention policy. qk: a board with q and k side by side."""
    depth = qk.stride // 2
    offsets = np.zeros((3, depth), np.float32)
    offsets[:, : promotion.shape[1]] = promotion[:3] + promotion[3]
    _policy(
        b,
        {"ATTENTION_POLICY": 1, "DEPTH": depth},
        qk,
        b.weight("policy.promotion", lambda: offsets),
        source,
    )


def policy_of_entries(
    b: ProgramBuilder, entries: Matrix, per_position: int, source: NDArray[np.int32]
) -> None:
    """Append the gathered logits of the legal moves. source: [1858], an index below per_position."""
    _policy(b, {"ATTENTION_POLICY": 0, "ENTRIES": per_position}, entries, None, source)


def _policy(
    b: ProgramBuilder,
    constants: dict[str, int],
    values: Matrix,
    promotion: Buffer | None,
    source: NDArray[np.int32],
) -> None:
    b.launch(
        "policy",
        constants,
        Geometry((b.positions, 1, 1), 8 * b.target.wave),
        (
            values.buffer,
            promotion,
            b.weight("policy.source", lambda: source.astype(np.int32)),
            b.exchange("move_offsets"),
            b.exchange("moves"),
            b.exchange("logits"),
        ),
        "policy.gather",
    )


def outputs(
    b: ProgramBuilder,
    value: Matrix,
    value_layer: Dense,
    moves: Matrix | None,
    moves_layer: Dense | None,
) -> None:
    """Append the last layers of the value and moves-left heads, from their hidden layers [positions,
    width]."""
    constants = {
        "WDL": int(len(value_layer.biases) == 3),
        "VALUE_WIDTH": value.width,
        "VALUE_STRIDE": value.stride,
        "VALUE_ACTIVATION": ACTIVATION_CODES[value_layer.activation],
        "MOVES_LEFT": int(moves is not None),
    }
    moves_arguments: tuple[Argument, ...] = (None, None, None)
    if moves is not None and moves_layer is not None:
        constants |= {
            "MOVES_WIDTH": moves.width,
            "MOVES_STRIDE": moves.stride,
            "MOVES_ACTIVATION": ACTIVATION_CODES[moves_layer.activation],
        }
        moves_arguments = (
            moves.buffer,
            b.weight("moves_left.weights", lambda: moves_layer.weights),
            b.weight("moves_left.biases", lambda: moves_layer.biases),
        )
    b.launch(
        "outputs",
        constants,
        Geometry((b.positions, 1, 1), 2 * b.target.wave),
        (
            value.buffer,
            b.weight("value.weights", lambda: value_layer.weights),
            b.weight("value.biases", lambda: value_layer.biases),
            *moves_arguments,
            b.exchange("wdl"),
            b.exchange("moves_left"),
        ),
        "outputs",
    )

"""The operations that a plan is made of: each appends the launches of one fused step to a Program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.plan.hopper import HEAD_DEPTH, AttentionTile, attention_tile
from evaluator.gpu.plan.products import Products
from evaluator.gpu.plan.program import Argument, Buffer, Matrix
from evaluator.gpu.plan.steps import ACTIVATION_CODES, Linear
from evaluator.gpu.plan.tensor_maps import heads_map, logits_map, rows_map
from evaluator.network.spec import Activation, FloatArray, SEUnit

_MOST_DEPTH_AT_ONCE = 128
"""Of kernels/attention.hip: a lane of a wave of 32 without a matrix unit then holds 64 sums."""


class Builder(Products):
    """Appends everything but the products, which `Products` does."""

    def attention(self, qkv: Matrix, heads: int, depth: int, bias: Matrix | None, name: str) -> Matrix:
        """softmax(q k^T + bias) v. qkv: a board that begins with 3 * heads * depth elements; bias:
        [positions * heads, 4096]."""
        out = self.matrix("attention", qkv.rows, heads * depth)
        chunk, size = self.precision.chunk, self.precision.bytes
        available = min(self.target.shared_bytes, 64 << 10)
        part = depth
        shared = 64 * (3 * (depth + chunk) + 64 + chunk) * size
        share_space = shared > available
        if share_space:
            for part in (depth, 64, 48, 32, 16):
                shared = 64 * (max(part, 64) + part + 2 * chunk) * size
                if part <= _MOST_DEPTH_AT_ONCE and depth % part == 0 and shared <= available:
                    break
        self.launch(
            "attention",
            {
                "DEPTH": depth,
                "SLICE": part,
                "BIAS": int(bias is not None),
                "SHARE_SPACE": int(share_space),
            },
            (heads, self.positions, 1),
            4 * self.target.wave,
            (qkv.buffer, None if bias is None else bias.buffer, out.buffer, heads, qkv.stride),
            name,
            shared_bytes=shared,
        )
        return out

    def attention_tile(self, depth: int) -> AttentionTile | None:
        """With what attention and the product before it are best done as one; None for two launches."""
        return attention_tile(self.positions, depth, self.target, self.precision) if self._fused else None

    def projected_attention(
        self, layer: Linear, a: Matrix, heads: int, bias: Matrix | None, name: str, tile: AttentionTile
    ) -> Matrix:
        """`attention` of what the layer makes of boards: q, k and v are never written to memory."""
        out = self.matrix("attention", a.rows, heads * HEAD_DEPTH)
        biases, precision = layer.biases, self.precision
        assert biases is not None
        k = layer.weights.shape[1]
        rows = rows_map(a.buffer, a.rows, k, a.stride, precision)
        self.launch(
            "attention_hopper",
            {
                "BLOCK_N": tile.block_n,
                "STAGES": tile.stages,
                "CLUSTER_M": tile.cluster_m,
                "CLUSTER_N": tile.cluster_n,
                "LOGITS": int(bias is not None),
            },
            (tile.blocks(a.rows, heads), 1, 1),
            tile.threads,
            (
                rows,
                heads_map(self.weight(f"{layer.name}.weights", lambda: layer.weights), heads, k, precision),
                rows if bias is None else logits_map(bias.buffer, a.rows // 64 * heads, precision),
                self.weight(f"{layer.name}.biases", lambda: biases),
                out.buffer,
                a.rows,
                k,
                heads,
            ),
            name,
            shared_bytes=tile.shared_bytes,
            cluster=tile.cluster,
        )
        return out

    def expand(self, *, appended: Matrix | None, pieces: bool) -> Matrix:
        """The packed positions as a board of planes, `appended` after them, or as [positions, 768] pieces."""
        if pieces:
            out = self.matrix("pieces", self.positions, 768)
            constants = {"STRIDE": 112, "TOKENS": 0, "PIECES": 1, "APPENDED": 0}
        else:
            extra = 0 if appended is None else appended.width // 64
            out = self.matrix("tokens", 64 * self.positions, 112 + extra)
            constants = {"STRIDE": out.stride, "TOKENS": 1, "PIECES": 0, "APPENDED": extra}
        parts = 1 if pieces else max(1, min(8, 64 // self.positions))
        self.launch(
            "expand",
            constants | {"PARTS": parts},
            (self.positions, parts, 1),
            256,
            (
                self.exchange("positions"),
                None if appended is None else appended.buffer,
                None if pieces else out.buffer,
                out.buffer if pieces else None,
            ),
            "pieces" if pieces else "tokens",
        )
        return out

    def squeeze_excite(
        self, unit: SEUnit, y: Matrix, skip: Matrix, activation: Activation, out: str, name: str
    ) -> Matrix:
        """activation(sigmoid(z[:C]) y + z[C:] + skip) with z from the mean of y."""
        result = self.matrix(out, y.rows, y.width)
        channels, hidden = y.width, len(unit.squeeze.biases)
        self.launch(
            "squeeze_excite",
            {
                "CHANNELS": channels,
                "HIDDEN": hidden,
                "STRIDE": y.stride,
                "SQUEEZE_ACTIVATION": ACTIVATION_CODES[unit.squeeze.activation],
                "ACTIVATION": ACTIVATION_CODES[activation],
            },
            (self.positions, 1, 1),
            256,
            (
                y.buffer,
                skip.buffer,
                self.weight(f"{name}.squeeze", lambda: unit.squeeze.weights.T),
                self.weight(f"{name}.squeeze_bias", lambda: unit.squeeze.biases),
                self.weight(f"{name}.excite", lambda: unit.excite.weights.T),
                self.weight(f"{name}.excite_bias", lambda: unit.excite.biases),
                result.buffer,
            ),
            name,
        )
        return result

    def policy_of_products(self, qk: Matrix, promotion: FloatArray, source: NDArray[np.int32]) -> None:
        """The logits of the legal moves of an attention policy. qk: a board of q and k side by side."""
        depth = qk.stride // 2
        offsets = np.zeros((3, depth), np.float32)
        offsets[:, : promotion.shape[1]] = promotion[:3] + promotion[3]
        self._policy(
            {"ATTENTION_POLICY": 1, "DEPTH": depth},
            qk,
            self.weight("policy.promotion", lambda: offsets),
            source,
        )

    def policy_of_entries(self, entries: Matrix, per_position: int, source: NDArray[np.int32]) -> None:
        """The logits of the legal moves, gathered. source: [1858], an index below per_position."""
        self._policy({"ATTENTION_POLICY": 0, "ENTRIES": per_position}, entries, None, source)

    def _policy(
        self, constants: dict[str, int], values: Matrix, promotion: Buffer | None, source: NDArray[np.int32]
    ) -> None:
        self.launch(
            "policy",
            constants,
            (self.positions, 1, 1),
            8 * self.target.wave,
            (
                values.buffer,
                promotion,
                self.weight("policy.source", lambda: source.astype(np.int32)),
                self.exchange("move_offsets"),
                self.exchange("moves"),
                self.exchange("logits"),
            ),
            "policy.gather",
        )

    def outputs(
        self,
        value: Matrix,
        value_layer: tuple[FloatArray, FloatArray, Activation],
        moves: Matrix | None,
        moves_layer: tuple[FloatArray, FloatArray, Activation] | None,
    ) -> None:
        """The last layers of the value and moves-left heads: (weights, biases, activation) each."""
        weights, biases, activation = value_layer
        constants = {
            "WDL": int(len(biases) == 3),
            "VALUE_WIDTH": value.width,
            "VALUE_STRIDE": value.stride,
            "VALUE_ACTIVATION": ACTIVATION_CODES[activation],
            "MOVES_LEFT": int(moves is not None),
        }
        moves_arguments: tuple[Argument, ...] = (None, None, None)
        if moves is not None and moves_layer is not None:
            moves_weights, moves_biases, moves_activation = moves_layer
            constants |= {
                "MOVES_WIDTH": moves.width,
                "MOVES_STRIDE": moves.stride,
                "MOVES_ACTIVATION": ACTIVATION_CODES[moves_activation],
            }
            moves_arguments = (
                moves.buffer,
                self.weight("moves_left.weights", lambda: moves_weights),
                self.weight("moves_left.biases", lambda: moves_biases),
            )
        self.launch(
            "outputs",
            constants,
            (self.positions, 1, 1),
            2 * self.target.wave,
            (
                value.buffer,
                self.weight("value.weights", lambda: weights),
                self.weight("value.biases", lambda: biases),
                *moves_arguments,
                self.exchange("wdl"),
                self.exchange("moves_left"),
            ),
            "outputs",
        )

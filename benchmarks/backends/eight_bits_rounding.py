"""What rounding the encoders' products to e4m3 or int8 does to a network's outputs, by what is rounded and
how. Needs no GPU.

    python -m benchmarks.backends.eight_bits_rounding [--networks shipped,FILE] [--games ARCHIVE]
        [--positions N] [--variants NAME,...]

Positions are drawn from an archive of labelled games (training/data/labelled_games.py), or from random games.
Outputs in float32 are compared with those of the network as it is: the divergence of the policies over the
legal moves (in nats), how often the best move is the same, how much probability the network itself gives its
best move more than the one chosen now, and the errors of W, D and L and of W - L."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks.backends.weight_formats import positions as random_positions
from engine.evaluation.encoding import encode_games
from evaluator.backends import reference
from evaluator.backends.reference import ReferenceBackend
from evaluator.commands.verify import network_of
from evaluator.gpu.plan.eight_bits import rounded_network
from evaluator.network import SHIPPED_NETWORK, int8
from evaluator.network.arithmetic import Array, activate, scalar, softmax
from evaluator.network.e4m3 import LARGEST, E4m3Inputs, nearest, rounded_matrix, scale_for
from evaluator.network.eight_bits import EightBits
from evaluator.network.int8 import Int8Inputs
from evaluator.network.spec import (
    Attention,
    AttentionBody,
    Dense,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    NetworkSpec,
    RoundedInputs,
)
from protocol.batch import EvaluationBatch, PositionBatch
from training.data.labelled_games import read_labelled_games
from training.data.replay import games_at

Weights = NDArray[np.float32]

# --- how inputs and weights are rounded ---------------------------------------------------------------------


class EachRow(E4m3Inputs):
    """Each row by its own largest element."""

    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        scales = LARGEST / np.maximum(np.abs(x).max(axis=-1, keepdims=True), 1e-30)
        result: NDArray[Any] = (nearest(x * scales) / scales).astype(x.dtype)
        return result


class EachTile(EachRow):
    """Each 128 neighbours of a row by their own largest element."""

    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        return EachRow.rounded(self, x.reshape(*x.shape[:-1], -1, 128)).reshape(x.shape)


class EachTensor(E4m3Inputs):
    """All of a batch by its largest element."""

    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        return E4m3Inputs(scale_for(float(np.abs(x).max()))).rounded(x)


class Int8Tiles(Int8Inputs):
    """Each 128 neighbours of a row by their own largest element."""

    width = 128

    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        return int8.rounded(x.reshape(*x.shape[:-1], -1, self.width)).reshape(x.shape)


class Int8Tiles64(Int8Tiles):
    width = 64


class Int8Clipped(Int8Inputs):
    """Each row by the scale of least squared error, which may be too small for the largest element."""

    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        return clipped(x)


class AsTheyAre(E4m3Inputs):
    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        return x


def rows_of_weights(weights: Weights) -> Weights:
    scales = np.float32(LARGEST) / np.maximum(np.abs(weights).max(axis=1, keepdims=True), np.float32(1e-30))
    result: Weights = (nearest(weights * scales) / scales).astype(np.float32)
    return result


@dataclass(frozen=True, slots=True)
class Fixed(Int8Inputs):
    """Each column on a scale of its own, known beforehand: whole numbers of steps from the middle, 127 each
    way. What is farther off is clipped."""

    middles: Weights
    steps: Weights

    @classmethod
    def between(cls, low: Weights, high: Weights) -> Fixed:
        widths = high - low
        steps: Weights = np.maximum(widths, np.float32(1e-3) * widths.max()) / np.float32(2 * int8.LARGEST)
        return cls(((low + high) / 2).astype(np.float32), steps)

    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        middles, steps = self.middles.astype(x.dtype), self.steps.astype(x.dtype)
        result: NDArray[Any] = np.rint((x - middles) / steps).clip(-127, 127) * steps + middles
        return result

    def weights(self, weights: Weights) -> Weights:
        """Of the layer that takes such inputs: rounded with the columns' steps in them."""
        result: Weights = (int8.rounded(weights * self.steps) / self.steps).astype(np.float32)
        return result


def clipped(values: NDArray[Any]) -> NDArray[Any]:
    """Rows of whole numbers of 8 bits, of the scale with the least squared error."""
    best, least = int8.rounded(values), np.inf
    for part in (1.0, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5):
        steps = int8.scales(values) * values.dtype.type(part)
        found = np.rint(values / steps).clip(-int8.LARGEST, int8.LARGEST) * steps
        error = np.square(found - values).sum(axis=-1, keepdims=True)
        best = np.where(error < least, found, best)
        least = np.minimum(least, error)
    return best


def as_they_are(weights: Weights) -> Weights:
    return weights


def attention_in_e4m3(layer: Attention, x: Array) -> Array:
    """The reference's attention with both of its products in e4m3, too."""
    count, heads = len(x), layer.heads

    def split(y: Array) -> Array:
        return y.reshape(count, 64, heads, -1).transpose(0, 2, 1, 3)

    q, k, v = (split(reference.dense(part, x)) for part in (layer.q, layer.k, layer.v))
    rows = EachRow(1.0)
    logits = rows.rounded(q) @ rows.rounded(k).transpose(0, 1, 3, 2) * scalar(q.shape[3] ** -0.5, x)
    if layer.smolgen is not None:
        logits = logits + reference.smolgen(layer.smolgen, heads, x)
    mixed = E4m3Inputs(256.0).rounded(softmax(logits)) @ EachTensor(1.0).rounded(v)
    return reference.dense(layer.output, mixed.transpose(0, 2, 1, 3).reshape(count, 64, -1))


NORM_DEVIATIONS, SUM_DEVIATIONS = 6.0, 6.0
"""How far from its mean the range of a fixed scale goes: of what a norm makes, and of a layer behind it."""


def fixed_for_norm(norm: LayerNorm) -> Fixed:
    reach = np.float32(NORM_DEVIATIONS) * np.maximum(np.abs(norm.gammas), np.abs(norm.gammas).max() / 1000)
    return Fixed.between(norm.betas - reach, norm.betas + reach)


def fixed_for_sums(layer: Dense, norm: LayerNorm) -> Fixed:
    """Of a layer's results from what a norm makes, whose elements are taken to be independent."""
    mean = layer.weights @ norm.betas + layer.biases
    reach = np.sqrt(np.square(layer.weights * norm.gammas).sum(axis=1)) * np.float32(SUM_DEVIATIONS)
    places = np.linspace(-1, 1, 65, dtype=np.float32)[:, None]
    values = activate(layer.activation, mean + reach * places)
    return Fixed.between(values.min(axis=0), values.max(axis=0))


# --- variants -----------------------------------------------------------------------------------------------

PARTS = ("q", "k", "v", "output", "dense1", "dense2")


@dataclass(frozen=True, slots=True)
class Variant:
    """Which products of an encoder are rounded, how their weights are, and how their inputs; None: as the gpu
    backend does it with this format. fixed: those whose inputs have scales that are known beforehand."""

    parts: tuple[str, ...] = PARTS
    weights: Callable[[Weights], Weights] = rounded_matrix
    inputs: type[RoundedInputs] | None = None
    attention: bool = False
    form: EightBits = EightBits.E4M3
    fixed: tuple[str, ...] = ()

    def of(self, network: NetworkSpec) -> NetworkSpec:
        body, ours = network.body, rounded_network(network, self.form).body
        assert isinstance(body, AttentionBody) and isinstance(ours, AttentionBody)
        norms = [None if body.tail is None else body.tail.norm2, *(layer.norm2 for layer in body.encoders)]
        encoders = tuple(map(self._encoder, body.encoders, ours.encoders, norms))
        return replace(network, body=replace(body, encoders=encoders))

    def _encoder(self, plain: EncoderLayer, ours: EncoderLayer, norm: LayerNorm | None) -> EncoderLayer:
        fixed: dict[str, Fixed] = {}
        if norm is not None:
            fixed = dict.fromkeys(("q", "k", "v"), fixed_for_norm(norm))
            fixed["output"] = fixed_for_sums(plain.attention.v, norm)
        fixed["dense1"] = fixed_for_norm(plain.norm1)
        fixed["dense2"] = fixed_for_sums(plain.ffn.dense1, plain.norm1)

        def chosen(name: str, before: Dense, after: Dense) -> Dense:
            if name not in self.parts or after.inputs is None:
                return before
            if name in self.fixed:
                return replace(before, weights=fixed[name].weights(before.weights), inputs=fixed[name])
            inputs = after.inputs
            if self.inputs is not None and issubclass(self.inputs, E4m3Inputs):
                inputs = self.inputs(1.0)
            elif self.inputs is not None:
                inputs = self.inputs()
            return replace(before, weights=self.weights(before.weights), inputs=inputs)

        before, after = plain.attention, ours.attention
        attention = replace(
            before,
            q=chosen("q", before.q, after.q),
            k=chosen("k", before.k, after.k),
            v=chosen("v", before.v, after.v),
            output=chosen("output", before.output, after.output),
        )
        ffn = FeedForward(
            chosen("dense1", plain.ffn.dense1, ours.ffn.dense1),
            chosen("dense2", plain.ffn.dense2, ours.ffn.dense2),
        )
        return replace(plain, attention=attention, ffn=ffn)


Int8 = partial(Variant, weights=int8.rounded, form=EightBits.INT8)

VARIANTS = {
    "fp8": Variant(),
    "weights-by-row": Variant(weights=rows_of_weights),
    "inputs-by-tensor": Variant(inputs=EachTensor),
    "inputs-by-row": Variant(inputs=EachRow),
    "inputs-by-tile": Variant(inputs=EachTile),
    "and-attention": Variant(attention=True),
    "weights-only": Variant(inputs=AsTheyAre),
    "inputs-only": Variant(weights=as_they_are),
    "q-and-k": Variant(("q", "k")),
    "v": Variant(("v",)),
    "output": Variant(("output",)),
    "ffn1": Variant(("dense1",)),
    "ffn2": Variant(("dense2",)),
    "int8": Int8(),
    "int8-inputs-by-128": Int8(inputs=Int8Tiles),
    "int8-inputs-by-64": Int8(inputs=Int8Tiles64),
    "int8-inputs-clipped": Int8(inputs=Int8Clipped),
    "int8-weights-clipped": Int8(weights=clipped),
    "int8-norms-fixed": Int8(fixed=("q", "k", "v", "dense1")),
    "int8-attention-fixed": Int8(fixed=("output",)),
    "int8-ffn-fixed": Int8(fixed=("dense2",)),
    "int8-all-fixed": Int8(fixed=PARTS),
    "int8-weights-only": Int8(inputs=AsTheyAre),
    "int8-inputs-only": Int8(weights=as_they_are),
    "int8-q-and-k": Int8(("q", "k")),
    "int8-v": Int8(("v",)),
    "int8-output": Int8(("output",)),
    "int8-ffn1": Int8(("dense1",)),
    "int8-ffn2": Int8(("dense2",)),
}


# --- measuring ----------------------------------------------------------------------------------------------


def positions(archive: Path | None, count: int, input_format: int) -> PositionBatch:
    """Positions without repeats, from all over an archive of labelled games, or from random games."""
    if archive is None:
        return random_positions(count, input_format)
    shard = read_labelled_games(archive)
    rows = np.random.default_rng(3).choice(shard.positions, count + count // 8, replace=False)
    games = [game for _, game in games_at(shard, {int(row) for row in rows}) if game.legal_moves()]
    return encode_games(games[:count], input_format=input_format)[0]


def evaluated(network: NetworkSpec, batch: PositionBatch, variant: Variant | None = None) -> EvaluationBatch:
    backend = ReferenceBackend(network if variant is None else variant.of(network))
    step = 64
    parts = [batch.slice(at, min(at + step, len(batch))) for at in range(0, len(batch), step)]
    if variant is None or not variant.attention:
        return EvaluationBatch.concatenate([backend.evaluate(part) for part in parts])
    with patch.object(reference, "attention", attention_in_e4m3):
        return EvaluationBatch.concatenate([backend.evaluate(part) for part in parts])


def errors(result: EvaluationBatch, expected: EvaluationBatch, batch: PositionBatch) -> dict[str, float]:
    divergences, same, lost = [], [], []
    for start, end in pairwise(batch.move_offsets):
        if start == end:
            continue
        right = softmax(expected.logits[start:end].astype(np.float64))
        found = softmax(result.logits[start:end].astype(np.float64))
        divergences.append(float((right * np.log(np.maximum(right, 1e-30) / np.maximum(found, 1e-30))).sum()))
        chosen = int(np.argmax(found))
        same.append(chosen == int(np.argmax(right)))
        lost.append(float(right.max() - right[chosen]))
    wdl = np.abs(result.wdl - expected.wdl)
    q = (result.wdl[:, 0] - result.wdl[:, 2]) - (expected.wdl[:, 0] - expected.wdl[:, 2])
    return {
        "divergence": float(np.mean(divergences)),
        "same_best_move": float(np.mean(same)),
        "lost_prior": float(np.mean(lost)),
        "wdl_mean": float(wdl.mean()),
        "wdl_largest": float(wdl.max()),
        "q_rms": float(np.sqrt(np.square(q).mean())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default="shipped")
    parser.add_argument("--games", type=Path, help="archive of labelled games (default: random games)")
    parser.add_argument("--positions", type=int, default=256)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    arguments = parser.parse_args()
    print("| network | rounded | KL | same best move | prior lost | W D L: mean, largest | W - L, rms |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.networks.split(","):
        network = network_of(str(SHIPPED_NETWORK) if name == "shipped" else name)
        batch = positions(arguments.games, arguments.positions, network.input_format.value)
        expected = evaluated(network, batch)
        for variant in arguments.variants.split(","):
            row = errors(evaluated(network, batch, VARIANTS[variant]), expected, batch)
            print(
                f"| {Path(name).name} | {variant} | {row['divergence']:.5f} | {row['same_best_move']:.1%} | "
                f"{row['lost_prior']:.5f} | {row['wdl_mean']:.4f}, {row['wdl_largest']:.3f} | "
                f"{row['q_rms']:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms of the persistent kernel. If several may be the fastest, each start measures them (`forms_for`).

docs/lab/gpu-small-batches.md describes other trials.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evaluator.backends.gpu.driver.target import Precision, Target

_WAVES = 8
_LOGITS_GAP = 4
"""The same as in kernels/persistent_logits.h."""

_TILE_US, _BYTES_PER_US = 2.5, 1.0e5
"""Model for the choice of an attention tile: its constant time, and bytes that a block reads per
microsecond."""


@dataclass(frozen=True, slots=True)
class PersistentForm:
    """Build options of the kernel.

    pairs: blocks form pairs that share the weights they read, if a product has an even number of tile rows
    (sm_90 only). The weights are then stored in the layout of shared memory, so that the TMA loads those of a
    tile as one piece; they are a copy of those for other programs. logits_in_attention: compute smolgen's
    logits in the attention phase, which saves one phase per layer; no effect without smolgen.
    """

    pairs: bool = False
    logits_in_attention: bool = False

    @property
    def name(self) -> str:
        """Name of the table of weights for the kernel."""
        return "padded" if self.pairs else "logits" if self.logits_in_attention else "usual"


USUAL = PersistentForm()

PAIRS_AND_LOGITS = PersistentForm(pairs=True, logits_in_attention=True)
"""With two positions of BT4 it spills four registers, and is still 6 % faster than USUAL."""


_BLOCKS_FOR_PAIRS = 100
"""Minimum blocks for pairs: with fewer blocks tiles are larger, and the kernel spills registers."""


def forms_for(target: Target, blocks: int) -> tuple[PersistentForm, ...]:
    """Return the forms that may be the fastest on a target with this many blocks."""
    pairs = target.name == "sm_90" and blocks >= _BLOCKS_FOR_PAIRS
    return (USUAL, PAIRS_AND_LOGITS) if pairs else (USUAL,)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Shape that tiles of kernels/persistent_logits.h divide. generated: elements of a head's vector."""

    positions: int
    heads: int
    depth: int
    generated: int
    precision: Precision

    def tile(self, blocks: int, input_bytes: int, weight_bytes: int) -> dict[str, int] | None:
        """Return the constants of the best tile by the model; None if none fits. input_bytes, weight_bytes:
        of shared memory per wave."""
        possible = [
            (self._microseconds(queries, heads, blocks), queries, heads)
            for queries, heads in self._tiles()
            if self._input_bytes(queries, heads) <= _WAVES * input_bytes
            and self._weight_bytes(queries, heads) <= _WAVES * weight_bytes
        ]
        if not possible or self.generated % 16:
            return None
        _, queries, heads = min(possible)
        return {"LOGITS_IN_ATTENTION": 1, "QUERIES": queries, "HEADS_OF_TILE": heads}

    def _tiles(self) -> Iterator[tuple[int, int]]:
        for queries in (1, 2, 4, 8):
            for heads in range(1, min(16, self.heads) + 1):
                yield queries, heads

    def _input_bytes(self, queries: int, heads: int) -> int:
        """Return the bytes of keys, values, queries and logits."""
        row = (self.depth + self.precision.chunk) * self.precision.bytes
        return (2 * heads * 64 + heads * queries + 16) * row + heads * queries * (64 + _LOGITS_GAP) * 4

    def _weight_bytes(self, queries: int, heads: int) -> int:
        """Return the bytes of the logits' weights, gammas and betas, and vectors."""
        row = self.generated + self.precision.chunk
        return ((64 * queries + 16) * row + heads * 2 * self.generated) * self.precision.bytes

    def _microseconds(self, queries: int, heads: int, blocks: int) -> float:
        tiles = self.positions * (64 // queries) * -(-self.heads // heads)
        # Weights load while the phase before ends; keys and values are waited for.
        read = self._input_bytes(queries, heads) + self._weight_bytes(queries, heads) / 2
        return -(-tiles // blocks) * (_TILE_US * -(-heads // _WAVES) + read / _BYTES_PER_US) + tiles * 1e-4

# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms of the persistent kernel. Where both may be the fastest, each start measures them (`forms_for`).

docs/lab/gpu-small-batches.md has what was tried besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evaluator.gpu.driver.target import Precision, Target

_WAVES = 8
_LOGITS_GAP = 4
"""As in kernels/persistent_logits.h."""

_TILE_US, _BYTES_PER_US = 2.5, 1.0e5
"""The model that chooses a tile of attention: what it takes whatever its size, and bytes that a block reads
in a microsecond."""


@dataclass(frozen=True, slots=True)
class PersistentForm:
    """How the kernel is made.

    pairs: blocks come in pairs that share the weights that they read, where a product has an even number of
    tiles down (sm_90 only). The weights are then stored as they lie in shared memory, so that the TMA brings
    those of a tile as one piece; a copy of what other programs want without.
    logits_in_attention: smolgen's logits are made where they are used, which is one phase less in each layer;
    networks without smolgen stay as they are.
    most_positions: larger batches have no such kernel.
    """

    pairs: bool = False
    logits_in_attention: bool = False
    most_positions: int = 2

    @property
    def name(self) -> str:
        """Which table of weights the kernel wants."""
        return "padded" if self.pairs else "logits" if self.logits_in_attention else "usual"

    def constants(self) -> dict[str, int]:
        """The constants of the kernel, LOGITS_IN_ATTENTION that of a network without smolgen."""
        return {"PAIRS": int(self.pairs), "LOGITS_IN_ATTENTION": 0}


USUAL = PersistentForm()

PAIRS_AND_LOGITS = PersistentForm(pairs=True, logits_in_attention=True, most_positions=1)
"""With two positions of a large network it would spill two registers."""


_BLOCKS_FOR_PAIRS = 100
"""With fewer blocks tiles are larger, and the kernel spills registers."""


def forms_for(target: Target, blocks: int) -> tuple[PersistentForm, ...]:
    """Those that may be the fastest on a target with so many blocks."""
    pairs = target.name == "sm_90" and blocks >= _BLOCKS_FOR_PAIRS
    return (USUAL, PAIRS_AND_LOGITS) if pairs else (USUAL,)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What a tile of kernels/persistent_logits.h is cut from. generated: elements of a head's vector."""

    positions: int
    heads: int
    depth: int
    generated: int
    precision: Precision

    def tile(self, blocks: int, input_bytes: int, weight_bytes: int) -> dict[str, int] | None:
        """The constants of the tile that the model likes best; None if none fits. input_bytes, weight_bytes:
        of shared memory for each wave."""
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
        """Keys, values, queries and logits."""
        row = (self.depth + self.precision.chunk) * self.precision.bytes
        return (2 * heads * 64 + heads * queries + 16) * row + heads * queries * (64 + _LOGITS_GAP) * 4

    def _weight_bytes(self, queries: int, heads: int) -> int:
        """Weights of the logits, gammas and betas, vectors."""
        row = self.generated + self.precision.chunk
        return ((64 * queries + 16) * row + heads * 2 * self.generated) * self.precision.bytes

    def _microseconds(self, queries: int, heads: int, blocks: int) -> float:
        tiles = self.positions * (64 // queries) * -(-self.heads // heads)
        # Weights are on their way while the phase before ends, keys and values are waited for.
        read = self._input_bytes(queries, heads) + self._weight_bytes(queries, heads) / 2
        return -(-tiles // blocks) * (_TILE_US * -(-heads // _WAVES) + read / _BYTES_PER_US) + tiles * 1e-4

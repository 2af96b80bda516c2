# SPDX-License-Identifier: GPL-3.0-or-later
"""Host side of kernels/gemm_hopper.hip and attention_hopper.hip: tiles, and conditions for their use.

They are for sm_90 with half precision and many rows. For products, the tuner measures each candidate,
including the passes that it needs or saves. Attention combined with its product is not measured at start:
`attention_tile` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.target import Precision, Target

BLOCK_M, BLOCK_K = 128, 64
THREADS = 384

HEAD_DEPTH, HEADS_OF_A_TILE = 32, 2
"""Tile of kernels/attention_hopper.hip, for a fixed head depth."""

FUSED_POSITIONS = 64
"""Minimum positions for attention and the product before it in one kernel, with a head depth of 32. Whole
batches on an H200 in milliseconds, as two launches and as one: 64 positions of BT4 2.46 and 2.34, of T82 1.61
and 1.53; 256 positions 8.88 and 8.31, 5.42 and 4.73. At 32 BT4 gains 2 % and T82 loses 2 %, because smolgen
then needs its own product (`ProgramBuilder.shares_products`)."""

_MIN_ROWS = 1024
"""With fewer rows, tiles of 128 rows leave most of the chip idle."""

_TOO_FEW = 3 * BLOCK_K
"""Minimum k: a tile begins and ends with two steps in halves."""

_SHARED_BYTES = 227 << 10

_FILLING_POSITIONS = 256
"""Minimum positions at which a partial last round of tiles matters."""


@dataclass(frozen=True, slots=True)
class HopperTile:
    """Constants of kernels/gemm_hopper.hip.

    cluster_m, cluster_n: blocks of a cluster, down and across. normalise: the same kernel computes the
    following layer norm; then a cluster, or row_blocks blocks, own whole rows.
    """

    block_n: int
    stages: int
    cluster_m: int = 1
    cluster_n: int = 1
    normalise: bool = False
    row_blocks: int = 0

    @property
    def cluster(self) -> int:
        return self.cluster_m * self.cluster_n

    @property
    def shared_bytes(self) -> int:
        """The stages and their barriers; per column at most four values (bias, gamma, beta; without a norm
        twice bias and scale); two per row; and a cluster's exchange buffers: 8 bytes per row, part and
        buffer."""
        stages = self.stages * ((BLOCK_M + self.block_n) * BLOCK_K * 2 + 16) + 32
        columns = 2 * (4 * self.block_n + 2 * 64) * 4
        return stages + columns + (2 * 2 * 2 * self.cluster_n * 64 * 8 if self.normalise else 0)

    def blocks(self, m: int, n: int) -> int:
        """Return one block per tile, in whole clusters."""
        down = -(-m // (BLOCK_M * self.cluster_m))
        across = -(-n // (self.block_n * self.cluster_n))
        return down * across * self.cluster

    def __str__(self) -> str:
        cluster = f" cluster {self.cluster_m}x{self.cluster_n}" if self.cluster > 1 else ""
        far = " far" * bool(self.row_blocks)
        return f"wgmma {BLOCK_M}x{self.block_n}{cluster}" + f" with{far} norm" * self.normalise


_TILES = (
    HopperTile(256, 4),
    HopperTile(256, 4, cluster_m=2),
    HopperTile(128, 6, cluster_m=2),
)

_NORMALISING = ((256, 4), (128, 5))
"""Columns of a tile, and stages."""

_MOST_BLOCKS_OF_A_CLUSTER = 8
"""Limit that every device of this capability supports."""


def candidates(product: Product, target: Target, precision: Precision) -> list[HopperTile]:
    """Return the tiles that can compute a product; empty except for many rows on sm_90 in half precision."""
    if target.name != "sm_90" or precision is Precision.FP32 or product.m < _MIN_ROWS:
        return []
    if product.convolution or product.bias_by_square or product.segment:
        return []
    if product.n % 32 or product.k % precision.chunk or product.k <= _TOO_FEW:
        return []
    tiles = [tile for tile in _TILES if tile.block_n <= max(128, product.n)]
    if product.normalised:
        tiles += [
            HopperTile(width, stages, 1, product.n // width, normalise=True)
            for width, stages in _NORMALISING
            if product.n % width == 0 and product.n // width <= _MOST_BLOCKS_OF_A_CLUSTER
        ]
        if product.n % 256 == 0 and product.n > 512:
            blocks = product.n // 256
            tiles.append(HopperTile(256, 4, 1, 1 + (blocks + 1) % 2, normalise=True, row_blocks=blocks))
    return [tile for tile in tiles if tile.shared_bytes <= _SHARED_BYTES]


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Constants of kernels/attention_hopper.hip, with two positions and two heads per tile."""

    stages: int = 4
    cluster_m: int = 2
    cluster_n: int = 1

    block_n: ClassVar[int] = HEADS_OF_A_TILE * 3 * HEAD_DEPTH
    threads: ClassVar[int] = 512

    @property
    def cluster(self) -> int:
        return self.cluster_m * self.cluster_n

    @property
    def shared_bytes(self) -> int:
        """The stages; all barriers in 1 KB; q, k and v of two heads and two positions; two boards of
        logits."""
        stages = self.stages * (BLOCK_M + self.block_n) * BLOCK_K * 2 + 1024
        return stages + 2 * HEADS_OF_A_TILE * 3 * 64 * HEAD_DEPTH * 2 + 2 * 64 * 64 * 2

    def blocks(self, rows: int, heads: int) -> int:
        """Return one block per tile, in whole clusters."""
        down = -(-rows // (BLOCK_M * self.cluster_m))
        across = -(-heads // (HEADS_OF_A_TILE * self.cluster_n))
        return down * across * self.cluster


def attention_tile(positions: int, depth: int, target: Target, precision: Precision) -> AttentionTile | None:
    """Return the tile of kernels/attention_hopper.hip; None if a product and attention by themselves are
    faster."""
    if target.name != "sm_90" or precision is Precision.FP32 or depth != HEAD_DEPTH:
        return None
    return AttentionTile() if positions >= FUSED_POSITIONS else None


def filling(positions: int, target: Target, multiprocessors: int) -> int:
    """Return a batch size, at most a sixteenth larger, whose tiles of 128 rows fill every processor in every
    round; otherwise the same size. It is a multiple of the processors: a tile has 2 positions, and most
    products have an even number of tile columns. BT4 on an H200 (132 processors): 264 positions have 1.1 %
    more throughput than 256, 528 2 % more than 512, 1056 1.3 % more than 1024."""
    more = -positions % multiprocessors
    if target.name != "sm_90" or positions < _FILLING_POSITIONS or 16 * more > positions:
        return positions
    return positions + more

# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's side of kernels/gemm_hopper.hip and attention_hopper.hip: what they compute, and their tiles.

They are for sm_90 alone, half precision and many rows. Of products nothing here decides: the tuner measures
each candidate beside the others, with the passes that it brings along or saves. Attention together with its
product is not measured at start: `attention_tile` says where it is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.target import Precision, Target

BLOCK_M, BLOCK_K = 128, 64
THREADS = 384

HEAD_DEPTH, HEADS_OF_A_TILE = 32, 2
"""The tile of kernels/attention_hopper.hip, which has the depth of a head compiled in."""

FUSED_POSITIONS = 64
"""From so many positions on attention and the product before it are one kernel, where heads are 32 deep.
Whole batches on an H200, in milliseconds as two launches and as one: 64 positions of BT4 2.46 and 2.34, of
T82 1.61 and 1.53; 256 8.88 and 8.31, 5.42 and 4.73. At 32 BT4 gains 2 % and T82 loses as much, as smolgen
then needs a product of its own (`ProgramBuilder.shares_products`)."""

_MIN_ROWS = 1024
"""Below, tiles of 128 rows leave most of the chip idle."""

_TOO_FEW = 3 * BLOCK_K
"""Values of k: a tile begins and ends with two steps in halves."""

_SHARED_BYTES = 227 << 10

_FILLING_POSITIONS = 256
"""From so many positions on it matters that no round of tiles is begun for a few of them."""


@dataclass(frozen=True, slots=True)
class HopperTile:
    """Constants of kernels/gemm_hopper.hip.

    cluster_m, cluster_n: blocks of a cluster, down and across. normalise: the layer norm that follows is
    computed in the same kernel, for which a cluster owns whole rows, or row_blocks blocks do together.
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
        """The stages, their barriers, at most four values of each column (bias, gamma, beta; without a norm
        twice bias and scale) and two of each row, and what a cluster exchanges: 8 bytes for each row, part
        and buffer."""
        stages = self.stages * ((BLOCK_M + self.block_n) * BLOCK_K * 2 + 16) + 32
        columns = 2 * (4 * self.block_n + 2 * 64) * 4
        return stages + columns + (2 * 2 * 2 * self.cluster_n * 64 * 8 if self.normalise else 0)

    def blocks(self, m: int, n: int) -> int:
        """One for each tile, in whole clusters."""
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
"""What every device of this capability can do."""


def candidates(product: Product, target: Target, precision: Precision) -> list[HopperTile]:
    """The tiles that can compute a product; none but for many rows on sm_90 in half precision."""
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
    """Constants of kernels/attention_hopper.hip, whose tiles have two positions and two heads."""

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
        """The stages, their barriers and those of the heads and logits in a kilobyte; q, k and v of two heads
        for two positions; two boards of logits."""
        stages = self.stages * (BLOCK_M + self.block_n) * BLOCK_K * 2 + 1024
        return stages + 2 * HEADS_OF_A_TILE * 3 * 64 * HEAD_DEPTH * 2 + 2 * 64 * 64 * 2

    def blocks(self, rows: int, heads: int) -> int:
        """One for each tile, in whole clusters."""
        down = -(-rows // (BLOCK_M * self.cluster_m))
        across = -(-heads // (HEADS_OF_A_TILE * self.cluster_n))
        return down * across * self.cluster


def attention_tile(positions: int, depth: int, target: Target, precision: Precision) -> AttentionTile | None:
    """For kernels/attention_hopper.hip, where it is faster than a product and attention by themselves."""
    if target.name != "sm_90" or precision is Precision.FP32 or depth != HEAD_DEPTH:
        return None
    return AttentionTile() if positions >= FUSED_POSITIONS else None


def filling(positions: int, target: Target, multiprocessors: int) -> int:
    """A batch size at most a sixteenth larger whose tiles of 128 rows fill every processor in every round,
    or else the same one. It is a multiple of the processors: a tile has 2 positions, and most products are an
    even number of tiles wide. (BT4 on an H200, which has 132: 264 positions are evaluated 1.1 % faster each
    than 256, 528 2 % faster than 512, 1056 1.3 % faster than 1024.)"""
    more = -positions % multiprocessors
    if target.name != "sm_90" or positions < _FILLING_POSITIONS or 16 * more > positions:
        return positions
    return positions + more

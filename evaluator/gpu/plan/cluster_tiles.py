# SPDX-License-Identifier: GPL-3.0-or-later
"""Tiles of kernels/gemm_cluster.hip, for products of some hundred rows on sm_90, and their choice for a
product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.target import Precision, Target

BLOCK_K = 64

PART_COLUMNS = 32
"""Columns of a row per partial sum (kernels/row_norms.h)."""

_FEWEST_ROWS, _MOST_ROWS = 128, 2048
"""Range of rows. Fewer use one launch for all encoders; for more, kernels/gemm_hopper.hip has larger
tiles."""

_SHAPES = ((64, 64, 6), (64, 128, 4), (128, 128, 6))
"""Rows, columns and stages. Except for the last, two blocks fit on a multiprocessor, so that the next
kernel's weights are loaded while this one ends."""

_CLUSTERS = ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 2))
"""Blocks that load weights for each other, and blocks that share the steps along k."""

MOST_CANDIDATES = 4
"""Maximum number of measured tiles, best by the model: each takes half a second to compile."""

_FLOPS_PER_US, _BYTES_PER_US, _L2_BYTES_PER_US = 5.7e6, 1.1e5, 5.5e6
"""Constants of the model: a multiprocessor's FLOPs and reads, and the total reads from L2."""

_END_US, _EXCHANGE_US = 1.0, 0.7


@dataclass(frozen=True, slots=True)
class ClusterTile:
    """Constants of kernels/gemm_cluster.hip. cluster_m: blocks that load the weights of their columns for
    each other. splits: blocks that share the steps along k."""

    block_m: int
    block_n: int
    stages: int
    cluster_m: int = 1
    splits: int = 1

    @property
    def threads(self) -> int:
        return 2 * self.block_m + 32

    @property
    def shared_bytes(self) -> int:
        """The stages, or the sums of the whole tile; two barriers per stage; two values per column."""
        stages = self.stages * (self.block_m + self.block_n) * BLOCK_K * 2
        sums = self.block_m * self.block_n * 4 if self.splits > 1 else 0
        return max(stages, sums) + 16 * self.stages + 8 * self.block_n

    @property
    def at_once(self) -> int:
        """Blocks per multiprocessor that fit into its registers without spilling."""
        return 2 if self.block_m == 64 and self.block_n <= 128 else 1

    def blocks(self, m: int, n: int) -> int:
        """Return the number of blocks, in whole clusters."""
        down = -(-m // (self.block_m * self.cluster_m))
        return down * -(-n // self.block_n) * self.cluster_m * self.splits

    def __str__(self) -> str:
        shared = f" cluster {self.cluster_m}" * (self.cluster_m > 1)
        return (
            f"wgmma {self.block_m}x{self.block_n} *{self.stages}"
            + shared
            + f" / {self.splits}" * (self.splits > 1)
        )


def candidates(
    product: Product, target: Target, precision: Precision, multiprocessors: int
) -> list[ClusterTile]:
    """Return the likeliest tiles for a product, best by the model first; empty except for some hundred rows
    on sm_90 in half precision."""
    if target.name != "sm_90" or precision is Precision.FP32:
        return []
    if not _FEWEST_ROWS <= product.m <= _MOST_ROWS or product.n % 32 or product.k % precision.chunk:
        return []
    if product.convolution or product.bias_by_square or product.segment or product.e4m3:
        return []
    ranked = sorted(_possible(product), key=lambda tile: estimate(product, tile, multiprocessors))
    return ranked[:MOST_CANDIDATES]


def _possible(product: Product) -> Iterator[ClusterTile]:
    steps = -(-product.k // BLOCK_K)
    for block_m, block_n, stages in _SHAPES:
        if block_n > max(64, product.n):
            continue
        for cluster_m, splits in _CLUSTERS:
            share = -(-steps // splits)
            uneven = share * (splits - 1) >= steps or (splits > 1 and share < 2)
            if block_m * cluster_m <= product.m and not uneven:
                yield ClusterTile(block_m, block_n, stages, cluster_m, splits)


def estimate(product: Product, tile: ClusterTile, multiprocessors: int) -> float:
    """Return a rough time in microseconds."""
    steps = -(-product.k // (BLOCK_K * tile.splits))
    blocks = tile.blocks(product.m, product.n)
    flops, loaded = 2 * tile.block_m * tile.block_n * BLOCK_K, (tile.block_m + tile.block_n) * BLOCK_K * 2
    step = max(flops / _FLOPS_PER_US, loaded / _BYTES_PER_US)
    read = blocks * steps * (tile.block_m + tile.block_n / tile.cluster_m) * BLOCK_K * 2
    busy = -(-blocks // multiprocessors) * steps * step
    together = _EXCHANGE_US if tile.splits > 1 else 0.0
    # Ties: prefer fewer blocks per cluster, then more stages.
    alike = 0.02 * tile.cluster_m * tile.splits - 0.01 * tile.stages
    return _END_US + max(busy, read / _L2_BYTES_PER_US) + together + alike

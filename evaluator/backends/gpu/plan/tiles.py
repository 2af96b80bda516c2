# SPDX-License-Identifier: GPL-3.0-or-later
"""Tiles and splits of matrix products.

`candidates` lists the choices for a product on a target. `estimate` ranks them by a simple model, which
decides if nothing was measured.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.target import AMD_UNITS, MatrixUnit, Precision, Target
from evaluator.backends.gpu.plan.hopper import HopperTile
from evaluator.backends.gpu.plan.quantised import GROUP


@dataclass(frozen=True, slots=True)
class Tile:
    """Constants of kernels/gemm.hip. rate: speed on a full chip, relative to the fastest. direct: its waves
    load weights as fragments (plan/weights.py) and share only the other operand."""

    block_m: int
    block_n: int
    block_k: int
    warps_m: int
    warps_n: int
    stages: int
    rate: float
    warps_k: int = 1
    direct: bool = False

    def shared_bytes(
        self, target: Target, precision: Precision, weight_bits: int = 0, *, normed: bool = False
    ) -> int:
        """Return the shared memory. weight_bits: of codes, if they are read; else 0. normed: with the rows'
        norms."""
        chunk, size = precision.chunk, precision.bytes
        stages = self.stages if target.name.startswith("sm_") else 2
        # Rows are padded by a chunk, or their chunks are swizzled (kernels/swizzled.h).
        swizzled = target.matrix_unit(precision) in AMD_UNITS and not weight_bits
        padding = 0 if swizzled else 16
        row = self.block_k * (weight_bits or 8 * size) // 8 + padding
        scales = self.block_k // GROUP * self.block_n * size if weight_bits == 4 else 0
        of_b = 0 if self.direct else self.block_n * row + scales
        stage = self.block_m * (self.block_k * size + padding) + of_b
        loading = stages * stage
        handed_over = (self.warps_k - 1) * self.block_m * self.block_n * 4
        # If the whole output takes more, it is written in parts (kernels/swizzled_out.h).
        out, of_wave = self.block_m * (self.block_n + chunk) * size, self.block_m // self.warps_m // 16
        while swizzled and out > loading and of_wave % 2 == 0:
            out, of_wave = out // 2, of_wave // 2
        return max(loading, handed_over, out + 8 * self.block_m * normed)

    @property
    def part_columns(self) -> int:
        """Columns of a wave, and of the partial sums of rows (kernels/row_norms.h)."""
        return self.block_n // self.warps_n

    @property
    def warps(self) -> int:
        return self.warps_m * self.warps_n * self.warps_k


@dataclass(frozen=True, slots=True)
class Choice:
    """How to compute a product: by our kernel with a tile, by a Hopper kernel with another kind of tile
    (hopper), or by an algorithm of a named library.

    splits: parts of k that are summed separately. fused: the library applies the activation, if it can.
    packed: the weights are read as codes.
    """

    tile: Tile | None
    splits: int = 1
    algorithm: bytes = b""
    library: str = ""
    fused: bool = True
    packed: bool = False
    hopper: HopperTile | None = None

    @property
    def whole(self) -> bool:
        """True if our general kernel computes the whole product from unpacked weights. Only these can apply a
        norm to their inputs, and leave one to their readers."""
        return self.tile is not None and self.splits == 1 and not self.packed

    def __str__(self) -> str:
        if self.hopper is not None:
            return str(self.hopper)
        if self.tile is None:
            # An algorithm is opaque bytes; a few digits distinguish them.
            digits = f"{zlib.crc32(self.algorithm):08x}"[:4]
            return f"{self.library} {digits}" + " unfused" * (not self.fused)
        tile = self.tile
        groups = f"*{tile.warps_k}" if tile.warps_k > 1 else ""
        kind = "packed " * self.packed + "direct " * tile.direct
        return f"{kind}{tile.block_m}x{tile.block_n}x{tile.block_k}{groups}" + (
            f" / {self.splits}" * (self.splits > 1)
        )


Chooser: TypeAlias = Callable[[Product], Choice]


@dataclass(frozen=True, slots=True)
class Measured:
    """A choice and its time in microseconds."""

    choice: Choice
    microseconds: float


Measurements: TypeAlias = Callable[[Product], Sequence[Measured]]
"""Returns all measurements of a product, fastest first; a Chooser takes the first."""

_MATRIX_TILES = (
    Tile(128, 128, 32, 2, 4, 4, 1.0),
    Tile(128, 64, 32, 4, 2, 4, 0.85),
    Tile(64, 64, 32, 2, 2, 4, 0.7),
    Tile(64, 32, 64, 4, 1, 4, 0.5),
    Tile(64, 64, 128, 2, 2, 3, 0.6, warps_k=2),
    Tile(64, 32, 128, 2, 1, 4, 0.45, warps_k=4),
    Tile(32, 32, 128, 2, 1, 6, 0.3, warps_k=4),
    Tile(16, 64, 64, 1, 4, 4, 0.25),
    Tile(16, 64, 128, 1, 2, 4, 0.25, warps_k=4),
    Tile(16, 32, 128, 1, 2, 6, 0.2),
    Tile(16, 32, 256, 1, 1, 4, 0.2, warps_k=8),
)
"""Tiles with groups along k are for a few positions, where the latency of a step matters."""

_FMA_TILES = (Tile(32, 32, 16, 2, 2, 2, 1.0), Tile(16, 32, 32, 1, 2, 2, 0.5, warps_k=2))
"""Larger ones spill registers on gfx906 and gfx1030."""

_WMMA_TILES = (
    Tile(128, 128, 32, 2, 2, 2, 1.0),
    Tile(128, 64, 32, 4, 1, 2, 0.9),
    Tile(64, 64, 32, 2, 2, 2, 0.8),
    *(tile for tile in _MATRIX_TILES[3:] if tile.warps > 2),
    Tile(16, 32, 64, 1, 2, 2, 0.2),
)
"""For RDNA: a wave of 64 x 64 uses each fragment from the LDS four times, the maximum for its registers. Two
waves with steps of 128 spill some on gfx11."""

_MFMA_TILES = (
    Tile(128, 128, 32, 2, 2, 2, 0.75),
    Tile(128, 64, 32, 4, 1, 2, 0.65),
    Tile(64, 64, 32, 2, 2, 2, 0.55),
    *_MATRIX_TILES[3:],
)
_DIRECT_TILES = (
    Tile(128, 128, 32, 2, 2, 2, 0.95, direct=True),
    Tile(256, 128, 32, 4, 1, 2, 1.0, direct=True),
)
"""For CDNA, whose LDS has half of RDNA's bandwidth relative to the matrix unit."""

_WIDE_K = 64
"""Pairs of e4m3 numbers that gfx950 multiplies along k in one instruction at its full rate. Waves whose part
of a step is shorter use an instruction for 16 pairs with half of that rate."""

_UNIT_TILES = {
    MatrixUnit.FMA: _FMA_TILES,
    MatrixUnit.MMA_SYNC: _MATRIX_TILES,
    MatrixUnit.WMMA_GFX11: _WMMA_TILES,
    MatrixUnit.WMMA_GFX12: _WMMA_TILES,
    MatrixUnit.MFMA: _MFMA_TILES,
}


_PACKED_MATRIX_TILES = (
    Tile(64, 64, 128, 1, 4, 4, 0.6, warps_k=2),
    Tile(64, 32, 128, 1, 2, 4, 0.45, warps_k=4),
    Tile(64, 16, 128, 1, 1, 4, 0.3, warps_k=8),
)
"""Additional tiles for codes: no two waves decode the same weights."""

_PACKED_FMA_TILES = (Tile(32, 32, 32, 2, 2, 2, 1.0),)
"""A row of 16 codes of 4 bits is less than a thread moves at once."""

_SPLITS = (1, 2, 3, 4, 6, 8, 16)

_LAUNCH_US, _STEP_US, _FULL_TFLOPS_PER_PROCESSOR, _PARTIALS_BYTES_PER_US = 2.0, 0.35, 3.5, 2.0e6
"""Constants of the model: cost of a launch, latency of a step along k, rate of a busy multiprocessor, and
bandwidth of partial sums (written and read). Fitted by eye on an H200."""


def candidates(
    product: Product, target: Target, precision: Precision, *, packed: bool = False
) -> list[Choice]:
    """Return all of our own choices for a product, unordered. packed: with weights as codes."""
    unit = target.matrix_unit(precision)
    fma = unit is MatrixUnit.FMA
    bits = product.weight_bits if packed else 0
    # Codes are decoded in registers, so larger tiles would spill.
    tiles: tuple[Tile, ...] = _MATRIX_TILES if packed and not fma else _UNIT_TILES[unit]
    if packed:
        tiles += _PACKED_FMA_TILES if fma else _PACKED_MATRIX_TILES
    direct: tuple[Tile, ...] = _DIRECT_TILES
    if product.e4m3 and target.name == "gfx950":
        tiles, wide = _wide(tiles), _wide(direct)
        direct = wide if _takes_fragments(product, wide) else direct
    if unit is MatrixUnit.MFMA and not packed and _takes_fragments(product, direct):
        tiles += direct
    choices = []
    for tile in tiles:
        if tile.shared_bytes(target, precision, bits) > target.shared_bytes or tile.block_k * bits % 128:
            continue
        steps = -(-product.k // tile.block_k)
        for splits in (1,) if product.bias_by_square else _SPLITS:
            if tile.direct and splits > 1:
                break
            share = -(-steps // splits)
            # Every split needs enough steps to be worth a block.
            if splits == 1 or (share >= 2 and -(-steps // share) == splits):
                choices.append(Choice(tile, splits, packed=packed))
    return choices


def _wide(tiles: tuple[Tile, ...]) -> tuple[Tile, ...]:
    return tuple(replace(tile, block_k=max(tile.block_k, _WIDE_K)) for tile in tiles)


def _takes_fragments(product: Product, direct: tuple[Tile, ...]) -> bool:
    """Return True if the pairs of steps of direct tiles are whole."""
    irregular = product.convolution or product.segment > 0
    return not irregular and all(product.k % (2 * tile.block_k) == 0 for tile in direct)


def estimate(product: Product, choice: Choice, multiprocessors: int) -> float:
    """Return a rough time in microseconds."""
    tile = choice.tile
    assert tile is not None
    blocks = -(-product.m // tile.block_m) * -(-product.n // tile.block_n) * choice.splits
    rounds = -(-blocks // multiprocessors)
    steps = -(-product.k // (tile.block_k * choice.splits))
    flops = 2.0 * tile.block_m * tile.block_n * tile.block_k * steps
    busy = rounds * flops / (_FULL_TFLOPS_PER_PROCESSOR * tile.rate * 1e6)
    latency = steps * _STEP_US * tile.block_k / 64 / tile.warps_k
    partials = (
        8.0 * product.m * product.n * choice.splits / _PARTIALS_BYTES_PER_US if choice.splits > 1 else 0.0
    )
    return _LAUNCH_US + max(busy, latency) + partials


def estimates(product: Product, target: Target, precision: Precision, multiprocessors: int) -> list[Measured]:
    """Return all of our own candidates with their `estimate` in place of measurements."""
    possible = candidates(product, target, precision)
    found = [Measured(choice, estimate(product, choice, multiprocessors)) for choice in possible]
    return sorted(found, key=lambda each: each.microseconds)


def model_chooser(
    target: Target, precision: Precision, multiprocessors: int, *, deterministic: bool = False
) -> Chooser:
    """Return a chooser by `estimate`. deterministic: neither splits nor groups along k, so that sums along k
    have one order at every batch size (all other tiles sum in the same order). Weights are read as codes if
    they have them."""

    def choose(product: Product) -> Choice:
        possible = candidates(product, target, precision, packed=product.weight_bits > 0)
        if deterministic:
            possible = [
                choice
                for choice in possible
                if choice.splits == 1 and choice.tile is not None and choice.tile.warps_k == 1
            ]
        return min(possible, key=lambda choice: estimate(product, choice, multiprocessors))

    return choose

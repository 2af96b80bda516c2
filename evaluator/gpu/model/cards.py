# SPDX-License-Identifier: GPL-3.0-or-later
"""Published figures of GPUs for the performance model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU. A unit runs a block: a compute unit of CDNA, a work group processor of RDNA (two compute units),
    a multiprocessor of NVIDIA; each has four SIMDs.

    clock: published MHz under load (boost). matrix: fp16 multiply-adds of a SIMD's matrix unit per clock.
    memory, cache: GB/s of memory and of the last cache. cache_mb: size of the last cache. shared: LDS bytes
    of a unit per clock. level2: bytes from the L2 cache to a unit per clock. latency: clocks of a load from
    the caches behind the unit. memory_latency: clocks of a load from memory. beside: True if the matrix unit
    works concurrently with other waves on the vector unit (CDNA, NVIDIA), False if it is part of it (RDNA).
    launch: microseconds from the last block of a launch to the first of the next, within a graph. source: of
    the figures.
    """

    name: str
    target: str
    units: int
    clock: int
    matrix: int
    memory: float
    cache: float
    cache_mb: int
    shared: int
    level2: float
    latency: int
    memory_latency: int
    beside: bool
    launch: float
    source: str

    @property
    def matrix_tflops(self) -> float:
        """Rate of all matrix units."""
        return self.units * 4 * self.matrix * self.clock * 1e-6


_LAUNCH = 3.0
"""Microseconds; assumed for AMD, without a measurement. NVIDIA's with programmatic dependent launch are 1.2
(docs/lab/gpu-performance.md: 190 launches cost a batch 0.3 ms, a third of it idle processors)."""

CARDS = {
    "7900xtx": Card(
        name="Radeon RX 7900 XTX",
        target="gfx1100",
        units=48,
        clock=2500,
        matrix=256,
        memory=960,
        cache=3500,
        cache_mb=96,
        shared=256,
        level2=64,
        latency=320,
        memory_latency=650,
        beside=False,
        launch=_LAUNCH,
        source="AMD's product page: 96 compute units, 2.5 GHz, 122.8 TFLOP/s fp16, 960 GB/s (3.5 TB/s "
        "effective with 96 MB of Infinity Cache); latency by Chips and Cheese",
    ),
    "9070xt": Card(
        name="Radeon RX 9070 XT",
        target="gfx1201",
        units=32,
        clock=2970,
        matrix=512,
        memory=640,
        cache=2400,
        cache_mb=64,
        shared=256,
        level2=64,
        latency=320,
        memory_latency=650,
        beside=False,
        launch=_LAUNCH,
        source="AMD's product page: 64 compute units, 2.97 GHz, 195 TFLOP/s fp16 (matrix, dense), 640 GB/s, "
        "64 MB of Infinity Cache, whose speed is taken as that of the 7900 XTX by memory channel",
    ),
    "mi300x": Card(
        name="Instinct MI300X",
        target="gfx942",
        units=304,
        clock=2100,
        matrix=512,
        memory=5300,
        cache=17200,
        cache_mb=256,
        shared=128,
        level2=54,
        latency=500,
        memory_latency=800,
        beside=True,
        launch=_LAUNCH,
        source="AMD's data sheet and CDNA 3 white paper: 304 compute units, 2.1 GHz, 1307.4 TFLOP/s fp16, "
        "5.3 TB/s, 256 MB of Infinity Cache with 17.2 TB/s, 2 KB a clock from the L2 of each of 8 dies",
    ),
    "mi355x": Card(
        name="Instinct MI355X",
        target="gfx950",
        units=256,
        clock=2400,
        matrix=1024,
        memory=8000,
        cache=17200,
        cache_mb=256,
        shared=256,
        level2=64,
        latency=500,
        memory_latency=800,
        beside=True,
        launch=_LAUNCH,
        source="AMD's data sheet and CDNA 4 white paper: 256 compute units, 2.4 GHz (MI350X: 2.2), 8 TB/s, "
        "2516 TFLOP/s fp16, 256 MB of Infinity Cache, an LDS that reads twice as much a clock as CDNA 3's; "
        "speed of the last cache and latency are taken as those of the MI300X, as are 2 KB a clock from the "
        "L2 of each of 8 dies",
    ),
    "strix-halo": Card(
        name="Radeon 8060S (Strix Halo)",
        target="gfx1151",
        units=20,
        clock=2900,
        matrix=256,
        memory=256,
        cache=1000,
        cache_mb=32,
        shared=256,
        level2=64,
        latency=320,
        memory_latency=650,
        beside=False,
        launch=_LAUNCH,
        source="AMD's product page: 40 compute units, 2.9 GHz; LPDDR5X-8000 of 256 bits, 256 GB/s; 32 MB of "
        "last cache, whose speed is taken as 1 TB/s",
    ),
    "h200": Card(
        name="NVIDIA H200",
        target="sm_90",
        units=132,
        clock=1830,
        matrix=640,
        memory=4800,
        cache=5700,
        cache_mb=50,
        shared=128,
        level2=48,
        latency=270,
        memory_latency=540,
        beside=True,
        launch=1.2,
        source="NVIDIA's data sheet: 132 multiprocessors, 4.8 TB/s, 989 TFLOP/s fp16 by wgmma, of which "
        "mma.sync, which these kernels use, reaches 62 % (Luo and others, arXiv 2402.13499)",
    ),
}
"""Cards by command line name. The H200 is included to show the model's error."""

PREDICTED = ("7900xtx", "9070xt", "mi300x", "mi355x", "strix-halo")
"""Cards that are predicted by default."""

MEMORY_REACHED = 0.87
"""Share of the published bandwidth of memory and caches that copies reach: 4.3 of 4.8 TB/s, and less for
short reads."""


def card_of(target: str) -> Card | None:
    """Return the card that represents a target, or None."""
    return next((card for card in CARDS.values() if card.target == target), None)

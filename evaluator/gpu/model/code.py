# SPDX-License-Identifier: GPL-3.0-or-later
"""Work of a wave in a kernel: cycles of each unit in the loop over products, and outside of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from evaluator.gpu.inspect.resources import Resources


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one wave, in clock cycles.

    matrix: of its SIMD's matrix unit. vector: of its vector unit. shared: LDS cycles of 128 bytes, without
    bank conflicts. loaded: bytes requested from the caches behind the unit. latency: from the first
    instruction to the last with all data present, for a single wave. loads: True if it loads anything.
    products: instructions of the matrix unit (without one, fused multiply-adds). steps: how often the block's
    waves wait for each other, at least 1. mix: instructions by kind.
    """

    matrix: float = 0.0
    vector: float = 0.0
    shared: float = 0.0
    loaded: float = 0.0
    latency: float = 0.0
    loads: bool = False
    products: int = 0
    steps: int = 1
    mix: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled kernel. loop: one pass of the innermost loop that multiplies; empty if all loops are
    unrolled. rest: everything else, once. ahead: steps of the loop that are prefetched."""

    loop: Work
    rest: Work
    resources: Resources
    ahead: int = 1


NOTHING = Code(Work(), Work(loads=True), Resources(0, 0, 0, 0, waves=8, most_waves=16))
"""Code of kernels that only move data: only their bytes and their launch count."""

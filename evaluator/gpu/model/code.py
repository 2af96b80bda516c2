# SPDX-License-Identifier: GPL-3.0-or-later
"""What a wave does in a kernel: its cycles of each unit in the loop over products, and outside of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from evaluator.gpu.inspect.resources import Resources


@dataclass(frozen=True, slots=True)
class Work:
    """Of one wave, in clock cycles.

    matrix: of its SIMD's matrix unit; vector: of its vector unit. shared: cycles of 128 bytes of the LDS,
    without conflicts of banks; loaded: bytes asked of the caches behind the unit. latency: from the first
    instruction to the last with everything at hand, the wave alone. loads: whether anything is loaded.
    products: instructions of the matrix unit (or, without one, fused multiplications). steps: how often the
    block's waves wait for each other, at least 1. mix: instructions by
    kind.
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
    """A compiled kernel. loop: one pass of the innermost loop that multiplies; rest: everything else, once.
    They are the same for kernels whose loops are all unrolled: then loop is empty. ahead: steps of the loop
    that are loaded before they are wanted."""

    loop: Work
    rest: Work
    resources: Resources
    ahead: int = 1


NOTHING = Code(Work(), Work(loads=True), Resources(0, 0, 0, 0, waves=8, most_waves=16))
"""Of kernels that only move what they are given: their bytes and their launch are all that counts."""

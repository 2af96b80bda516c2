# SPDX-License-Identifier: GPL-3.0-or-later
"""The time of one launch on a card: the slowest of its resources, in rounds of blocks.

A block needs its waves' cycles of the matrix unit, the vector unit, the LDS and the path to the L2 cache, and
at least the duration of its chain of dependent steps. Registers and LDS limit the blocks per unit. Their
total needs are compared with the duration of one block. No launch takes less than its bytes of memory.

If a block's waves wait for each other at every step, their needs of the matrix unit, the vector unit and the
LDS are added: products on an H200 take the sum of the three. The bound with all of them fully concurrent is
also given.
"""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.gpu.driver.target import MatrixUnit, Target, amd_target
from evaluator.gpu.model.banks import conflicts
from evaluator.gpu.model.cards import MEMORY_REACHED, Card
from evaluator.gpu.model.code import Code, Work
from evaluator.gpu.plan.program import Argument, Launch

_BARRIER = 40.0
"""Clocks of a barrier, of signals to all waves, and of the work that does not overlap there."""

_SIMDS = 4

_FEW_BLOCKS = 4
"""Number of blocks that share weights."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of a launch. weights: read once, by this launch only. data: read and written between launches."""

    weights: float
    data: float


@dataclass(frozen=True, slots=True)
class Timing:
    """microseconds: including the gap to the next launch. bound: if all parts of a unit worked concurrently.
    limit: the limiting resource. flop: of matrix products. shares: of the time, what each resource would need
    alone. waves: per SIMD."""

    microseconds: float
    bound: float
    limit: str
    flop: float
    traffic: Traffic
    shares: dict[str, float]
    waves: int

    @property
    def intensity(self) -> float:
        """FLOP per byte of memory."""
        return self.flop / max(1.0, self.traffic.weights + self.traffic.data)


def timing(launch: Launch, code: Code, card: Card, target: Target, traffic: Traffic, cached: bool) -> Timing:
    """Return the time of a launch. cached: data and weights are in the card's last cache."""
    waves = -(-launch.threads // target.wave)
    passes = _passes(launch, code.loop, target)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    resident = max(1, code.resources.waves * _SIMDS // waves)
    if code.resources.shared_bytes:
        resident = min(resident, max(1, _shared_bytes(card) // code.resources.shared_bytes))
    full, left = divmod(blocks, resident * card.units)
    factors = conflicts(launch.kernel, target)
    # The first blocks that need a tile of weights wait for memory, later ones for a cache.
    latency = card.latency if cached or launch.grid[1] > _FEW_BLOCKS else card.memory_latency
    needs = dict.fromkeys(("matrix unit", "vector unit", "shared memory", "L2 cache", "latency"), 0.0)
    cycles = overlapped = 0.0
    for rounds, held in ((full, resident), (1 if left else 0, -(-left // card.units))):
        if rounds:
            one = _unit_needs(code, passes, held, waves, card, factors, latency)
            cycles += rounds * max(*one.values(), _in_turns(one) if passes else _shared_issue(one, card))
            overlapped += rounds * max(*one.values(), _shared_issue(one, card))
            for name, value in one.items():
                needs[name] += rounds * value
    microseconds = {name: value / card.clock for name, value in needs.items()}
    speed = (card.cache if cached else card.memory) * MEMORY_REACHED * 1e3
    microseconds["memory"] = (traffic.weights + traffic.data) / speed
    busy, least = (max(each / card.clock, microseconds["memory"]) for each in (cycles, overlapped))
    total = busy + card.launch
    limit = max(microseconds, key=microseconds.__getitem__) if busy > card.launch else "launch"
    flop = flop_of(launch)
    shares = {name: value / total for name, value in microseconds.items()}
    # Of the whole card, including idle units in the last round.
    shares["matrix unit"] = flop / (card.matrix_tflops * 1e6) / total
    held = min(code.resources.waves, -(-resident * waves // _SIMDS))
    return Timing(total, least + card.launch, limit, flop, traffic, shares, held)


def _unit_needs(
    code: Code,
    passes: float,
    blocks: int,
    waves: int,
    card: Card,
    conflict: tuple[float, float],
    latency: float,
) -> dict[str, float]:
    """Return the clocks that a unit's blocks need of each resource, and their duration. conflict: factors on
    the shared memory of the loop and of the rest. latency: of their loads."""

    def total(of_loop: float, of_rest: float) -> float:
        return passes * of_loop + of_rest

    loop, rest = code.loop, code.rest
    simd = -(-blocks * waves // _SIMDS)
    unit = blocks * waves
    waits = loop.steps * latency / code.ahead if loop.loads else 0.0
    step = max(loop.latency, waits) + loop.steps * _BARRIER
    start = card.latency + (latency if rest.loads else 0.0)  # the arguments, then the first data
    shared = total(conflict[0] * loop.shared, conflict[1] * rest.shared)
    return {
        "matrix unit": simd * total(loop.matrix, rest.matrix),
        "vector unit": simd * total(loop.vector, rest.vector),
        "shared memory": unit * shared * 128 / card.shared,
        "L2 cache": unit * total(loop.loaded, rest.loaded) / card.level2,
        "latency": (passes * step if passes else 0.0) + rest.latency + start,
    }


def _in_turns(needs: dict[str, float]) -> float:
    return needs["matrix unit"] + needs["vector unit"] + needs["shared memory"]


def _shared_issue(needs: dict[str, float], card: Card) -> float:
    """Return the clocks of a SIMD whose matrix unit is part of the vector unit."""
    return 0.0 if card.beside else needs["matrix unit"] + needs["vector unit"]


def _shared_bytes(card: Card) -> int:
    return 227 << 10 if card.target.startswith("sm_9") else amd_target(card.target).lds_bytes


def _passes(launch: Launch, loop: Work, target: Target) -> float:
    """Return how often a wave runs the loop."""
    if not loop.products:
        return 0.0
    unit = target.matrix_unit(launch.kernel.precision)
    of_16 = {MatrixUnit.MMA_SYNC: 2, MatrixUnit.FMA: 16**3 // target.wave}.get(unit, 1)
    waves = launch.threads // target.wave
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    return flop_of(launch) / (2 * 16**3) * of_16 / (waves * blocks * loop.products)


def _integer(argument: Argument) -> int:
    assert isinstance(argument, int)
    return argument


def flop_of(launch: Launch) -> float:
    """Return the FLOPs of a launch's matrix products; partially used tiles count fully."""
    constants = dict(launch.kernel.constants)
    x, y, z = launch.grid
    if launch.kernel.file == "gemm":
        k = _integer(launch.arguments[9])
        steps = _integer(launch.arguments[13]) if z > 1 else -(-k // constants["BLOCK_K"])
        tile = constants["BLOCK_M"] * constants["BLOCK_N"] * constants["BLOCK_K"]
        return 2.0 * x * y * z * steps * tile
    if launch.kernel.file == "attention":
        return 2.0 * x * y * 2 * 64 * 64 * constants["DEPTH"]
    return 0.0


def traffic_of(launch: Launch, sizes: dict[str, float]) -> Traffic:
    """Return the bytes of a launch. sizes: of the program's buffers, for all other kernels."""
    arguments, element = launch.arguments, launch.kernel.precision.bytes
    constants = dict(launch.kernel.constants)
    if launch.kernel.file == "gemm":
        m, n, k, _, ldo = map(_integer, arguments[7:12])
        rows = k // 9 if constants["CONVOLUTION"] else k
        out = 4.0 * m * n * launch.grid[2] if constants["SPLIT"] else element * m * min(ldo, n)
        residual = element * m * ldo if constants["RESIDUAL"] else 0
        sums = 8 * m * constants["NORM_PARTS"]
        if constants["ROW_SUMS"]:
            sums += 8 * m * n * constants["WARPS_N"] // constants["BLOCK_N"]
        weights = n * k * (constants["PACKED"] or 8 * element) / 8
        return Traffic(weights, element * m * rows + out + residual + sums)
    if launch.kernel.file == "attention":
        heads, boards = launch.grid[:2]
        one = 4 * 64 * constants["DEPTH"] + (4096 if constants["BIAS"] else 0)
        return Traffic(0.0, float(element * heads * boards * one))
    if launch.kernel.file == "rows":
        rows, splits = _integer(arguments[9]), _integer(arguments[10])
        taken = 4 * splits if constants["SPLIT"] else element
        row = constants["WIDTH"] * (taken + element * (1 + constants["RESIDUAL"]))
        return Traffic(0.0, float(rows * row))
    named = {getattr(each, "name", "") for each in arguments}
    return Traffic(0.0, sum(sizes.get(name, 0.0) for name in named))

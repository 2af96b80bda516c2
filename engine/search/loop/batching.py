# SPDX-License-Identifier: GPL-3.0-or-later
"""Batch sizes: positions per request, from the size of the tree and the speed of the device.

The search selects positions in flight without knowing each other's values. The larger their part of the tree,
the worse the selection. A device with many processors computes many positions in hardly more time than few.
There the search requests few and fills the batch by looking ahead (Tree.collect): with positions that it will
probably need next. Their evaluations go to the cache and count for nothing until then. If the time is
proportional to the positions, as on a CPU, looking ahead would only cost.

A single search (UCI, the Python API) keeps the same part of the tree in flight as one of many on a shared
device (matches, self-play). So a node limit means the same in both. Only the way to keep the device busy
differs. docs/explanation/batching.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from engine._core import BatchRule
from protocol.wire.messages import best_rate

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.limits import Limits

SHARE, LEAST = 32, 2
"""On a device whose batches can be filled: tree visits per position requested, and minimum positions."""

SHARE_BY_NODES = 64
"""SHARE if only visits are limited: fewer positions in flight make a slower search, but a better tree."""

FACTOR, FACTOR_BY_NODES = 1.0, 0.5
"""On such a device: maximum positions in flight per square root of the tree's visits; the second applies
if only visits are limited. The larger the tree, the smaller the part of it that may be in flight."""

SECOND = 16
"""On such a device: minimum size of a batch sent while another is in flight."""

CALL_MS = 0.4
"""Time of a call outside the device (docs/lab/latency.md), which computes the previous batch meanwhile."""

POSITION_MS = 0.0035
"""More such time for each position, which the search collects and applies: with CALL_MS 0.58 to 0.68 ms for
calls of 65 to 78 positions on an H200 (docs/lab/batching.md)."""

SHARE_UNFILLED, LEAST_UNFILLED = 4, 4
"""SHARE and LEAST on other devices, for each batch."""

SMALL_BATCH = 8
"""Positions of the small batch that others are compared with."""

FLAT = 1.5
"""Filling a batch is nearly free while its call takes at most this many times that of a small one."""

MOST_AHEAD = 64
"""Largest batch that one search fills by looking ahead: each position costs CPU time."""

LARGE_TREE = 64
"""Visits per position of the best batch from which on a tree is large (BatchSizes.in_tree)."""

LARGE_BATCH_MS = 100.0
"""Longest computing time of the larger batches for large trees."""

# -- one of many searches ------------------------------------------------------------------------------------

POSITIONS_PER_GAME = 8
"""Positions that one game is assumed to contribute to a device batch."""

MAX_RECOMMENDED_GAMES = 256

STEPS_PER_SECOND = 800
"""Maximum steps of all searches of a pool. A step applies a result and collects positions. It costs about
70 µs of CPU time, which a CPU backend needs itself."""

MAX_POSITIONS_PER_STEP = 16
"""Limit of the larger steps that fast devices get so that there are fewer of them."""

MAX_FILLED = 128
"""Maximum positions per request of one of many searches, look-ahead included. The more there are, the fewer
of them the search needs later."""

FAST_DEVICE = 40_000
"""Positions per second that a process supplies if its many searches hardly look ahead: with 100 nodes each
52,000 a core. On a slower device, look-ahead positions would displace positions that searches need now."""

TURNS, TURNS_ON_FAST = 2, 8
"""Batches of the recommended size that all searches together keep in flight: one computing and one queued.
Fast devices get a larger target: half of the positions are with the searches, and young trees send less."""

LARGEST_STEPS, LARGE_POOLED_TREE = 3, 32
"""With look-ahead: factor of the step size, and tree visits per position of a step from which it applies."""

FEW_POSITIONS = 4
"""Positions per request that weaken no search; the initial size."""

FEW_SEARCHES_POSITIONS = 64
"""Total up to which each of a few searches sends FEW_POSITIONS. Otherwise device batches and requests would
hold only one or two positions."""


@dataclass(frozen=True, slots=True)
class Speed:
    """The speed and limits of a device, as the search knows them.

    best: efficient batch size. most: largest batch that its evaluator accepts. curve: measured (batch, ms),
    ascending; empty if nothing was measured.
    """

    best: int
    most: int
    curve: Sequence[tuple[int, float]] = ()

    @property
    def rate(self) -> float:
        """Positions per second according to the curve; 0 if nothing was measured."""
        return best_rate(self.curve)

    @classmethod
    def together(cls, devices: Sequence[Speed]) -> Speed:
        """Return one device for at least one that share the work: it computes as many positions per time as
        all together, and accepts the largest batch that each accepts."""
        if len(devices) == 1:
            return devices[0]
        times = sorted({ms for device in devices for _, ms in device.curve})
        curve: list[tuple[int, float]] = []
        for time in times:
            size = sum(device.within(time) for device in devices)
            if not curve or size > curve[-1][0]:
                curve.append((size, time))
        return cls(sum(device.best for device in devices), min(device.most for device in devices), curve)

    def within(self, milliseconds: float) -> int:
        """Return the largest batch that was measured to take at most this time; 0 if there is none."""
        return max((size for size, ms in self.curve if ms <= milliseconds), default=0)

    def milliseconds(self, size: int) -> float:
        """Return a batch's time, interpolated between measured sizes; 0 if nothing was measured."""
        if not self.curve:
            return 0.0
        sizes, times = zip(*self.curve, strict=True)
        return float(np.interp(size, sizes, times) * max(1.0, size / sizes[-1]))

    @property
    def second_batch(self) -> int:
        """The batch size from which on two overlapping batches finish sooner than one of twice the size."""
        size = SECOND
        while size < self.best:
            outside_ms = CALL_MS + POSITION_MS * 2 * size
            if 2 * self.milliseconds(size) <= self.milliseconds(2 * size) + outside_ms:
                break
            size *= 2
        return min(size, self.best)

    @property
    def flat_batch(self) -> int:
        """The largest batch that takes hardly longer than a small one; 0 if none is worth it."""
        small = next((ms for size, ms in self.curve if size >= SMALL_BATCH), None)
        if small is None:
            return 0
        most_ms = FLAT * (small + CALL_MS) - CALL_MS
        flat = max((size for size, ms in self.curve if size >= SMALL_BATCH and ms <= most_ms), default=0)
        return min(flat, MOST_AHEAD) if flat >= 2 * SMALL_BATCH else 0

    @property
    def games(self) -> int:
        """Concurrent games that keep the device busy: they fill two batches, one computing and one queued."""
        return max(2, min(MAX_RECOMMENDED_GAMES, ceil(TURNS * self.best / POSITIONS_PER_GAME)))


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Positions per batch.

    best: efficient batch size. curve: measured (batch, ms), ascending. largest: for large trees, which have
    `large_tree` visits per position of `best`; 0: same as best. filled: smaller batches are filled up to this
    by looking ahead (Tree.collect). share, least: one position is requested per `share` visits of the tree,
    and at least `least`; in all batches together if `together`, else in each. factor: total limit, in square
    roots of the visits; 0: no limit. in_flight: maximum batches in flight. second: if `together`, minimum
    size of a batch sent while another is in flight.
    """

    best: int
    curve: Sequence[tuple[int, float]] = ()
    largest: int = 0
    filled: int = 0
    large_tree: int = LARGE_TREE
    share: int = SHARE_UNFILLED
    least: int = LEAST_UNFILLED
    together: bool = False
    factor: float = 0.0
    in_flight: int = 2
    second: int = 0

    @property
    def rule(self) -> BatchRule:
        """The rule of these sizes for the core, which applies it."""
        return BatchRule(**{name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def alone(cls, device: Speed, options: Options, limits: Limits) -> BatchSizes:
        """Return the sizes of a single search: filled as far as the device's time is flat. Large trees get
        twice the device's best batch, if that is quick enough."""
        best = min(device.best, device.most)
        sizes = cls(
            best, device.curve, _doubled(best, device), device.flat_batch, in_flight=options.batches_in_flight
        )
        return sizes._with_options(device, options, limits)

    @classmethod
    def pooled(
        cls, device: Speed, options: Options, limits: Limits, searches: int, processes: int
    ) -> BatchSizes:
        """Return the sizes of one of many searches, in one or more processes, that share the device.

        Each has one batch in flight: while it waits, the device computes those of the others.
        """
        if searches < 2:
            return cls.alone(device, options, limits)
        best = min(positions_per_step(device, searches), device.most)
        filled = filled_step(device, searches, processes)
        largest = min(LARGEST_STEPS * best, filled)
        sizes = cls(best, device.curve, largest, filled, LARGE_POOLED_TREE, in_flight=1)
        return sizes._with_options(device, options, limits)

    def _with_options(self, device: Speed, options: Options, limits: Limits) -> BatchSizes:
        """Return these sizes with the batching options and the matching part of the tree. A size fixed by the
        user is filled only if LookAhead is set.

        The part of the tree depends on the device alone, so that a node limit means the same to each of many
        searches, whether they look ahead or not.
        """
        sizes = self
        if options.minibatch_size:
            fixed = min(options.minibatch_size, device.most)
            sizes = replace(sizes, best=fixed, largest=fixed, filled=0)
        if options.look_ahead >= 0:
            sizes = replace(sizes, filled=min(options.look_ahead, device.most))
        fills = device.flat_batch and not options.minibatch_size
        if fills or sizes.filled or options.visits_per_position:
            share = options.visits_per_position or (SHARE_BY_NODES if limits.by_nodes else SHARE)
            factor = options.in_flight_factor
            if factor < 0:
                factor = FACTOR_BY_NODES if limits.by_nodes else FACTOR
            second = options.second_batch or device.second_batch
            sizes = replace(sizes, share=share, least=LEAST, together=True, factor=factor, second=second)
        return sizes


def _doubled(best: int, device: Speed) -> int:
    """Return twice the best batch if the device accepts it and is quick enough, else the best batch."""
    curve = device.curve
    size, ms = next((point for point in curve if point[0] >= 2 * best), curve[-1] if curve else (1, 0.0))
    quick = ms * max(1.0, 2 * best / size) <= LARGE_BATCH_MS
    return min(2 * best, device.most) if quick else best


def positions_per_step(device: Speed, searches: int) -> int:
    """Return the maximum positions per request of each of N searches.

    Together they keep two batches of the recommended size in flight, one computing and one queued. A longer
    queue only delays answers and weakens searches. Steps are larger if there would be too many or too small
    ones otherwise.
    """
    fair = ceil(TURNS * device.best / searches)
    few = min(FEW_POSITIONS, ceil(FEW_SEARCHES_POSITIONS / searches))
    least = min(MAX_POSITIONS_PER_STEP, max(few, ceil(device.rate / STEPS_PER_SECOND)))
    return max(1, min(device.best, max(fair, least)))


def filled_step(device: Speed, searches: int, processes: int) -> int:
    """Return the positions per request of each search, look-ahead included; 0 if it does not look ahead.

    Trees of some hundred visits request too few positions for the two batches that keep a fast device busy.
    There each looks ahead as far as needed. On other devices all searches together fill the flat batch.
    """
    if not device.flat_batch:
        return 0
    if device.rate >= FAST_DEVICE * processes:
        return min(ceil(TURNS_ON_FAST * device.best / searches), MAX_FILLED, device.most)
    filled = device.flat_batch // searches
    return filled if filled > LEAST else 0

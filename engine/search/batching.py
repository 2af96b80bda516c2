# SPDX-License-Identifier: GPL-3.0-or-later
"""How many positions a search asks for at a time: what the tree bears, and what the device is quick at.

Positions in flight are chosen without the values of the others, so they are worse the larger a part of the
tree they are. A device with many processors takes hardly longer for many positions than for few. Where it
does, the search asks for few and fills the batch by looking ahead: with positions that it will probably want
next, whose evaluations go to the cache and count for nothing until it does (Tree.collect). Where time is
proportional to positions, as on a CPU, looking ahead would only cost.

The same holds for a search of its own (UCI, the Python API) and for one of many that share a device (matches,
self-play): what is in flight is the same part of the tree, so that a limit of nodes means the same in both.
Many searches differ in what keeps the device busy. docs/explanation/batching.md has what was measured.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from engine._core import BatchRule
from protocol.messages import best_rate

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.limits import Limits

SHARE, LEAST = 32, 2
"""Where batches are filled: visits of the tree for each position wanted, and positions wanted at least."""

SHARE_BY_NODES = 64
"""The same where visits are limited and time is not: trees with fewer in flight grow slowly, and better."""

FACTOR, FACTOR_BY_NODES = 1.0, 0.5
"""Positions in flight at most, where batches are filled, for each square root of the tree's visits: the
larger a tree, the smaller the part of it that may be. By time, and where visits are limited and time is
not."""

SECOND = 16
"""Positions that a batch has at least which is sent while another is in flight, where batches are filled."""

CALL_MS = 0.4
"""What a call takes besides the device (docs/lab/latency.md), which works on the previous one meanwhile."""

SHARE_UNFILLED, LEAST_UNFILLED = 4, 4
"""The same, for each batch, where they are not filled."""

SMALL_BATCH = 8
"""Positions of a small batch, whose time others are compared with."""

FLAT = 1.5
"""A batch is as good as free to fill while its call takes at most this many times that of a small one."""

MOST_AHEAD = 64
"""Largest batch that one search fills by looking ahead: each position costs its own processor time."""

LARGE_TREE = 64
"""A tree with this many visits for each position of the best batch is large (BatchSizes.in_tree)."""

LARGE_BATCH_MS = 100.0
"""Longest time of the larger batches of large trees."""

# -- one of many searches ------------------------------------------------------------------------------------

POSITIONS_PER_GAME = 8
"""Positions that one game contributes to a device batch, as a rule, when games are counted."""

MAX_RECOMMENDED_GAMES = 256

STEPS_PER_SECOND = 800
"""Steps (an answer taken, more positions collected) of all searches of a pool together, at most: each costs
some 70 µs of processor time, which a CPU backend lacks."""

MAX_POSITIONS_PER_STEP = 16
"""For the sake of fewer steps on fast devices."""

MAX_FILLED = 128
"""Positions that one of many searches sends at a time with those that it looks ahead to: the more there are,
the fewer of them it wants in the end."""

FAST_DEVICE = 40_000
"""Positions per second that a process feeds a device with if its searches hardly look ahead, as one of many.
A slower device has enough to do, and what is looked ahead to would take the place of what a search wants."""

TURNS, TURNS_ON_FAST = 2, 8
"""Batches of the recommended size that all searches together send: one at work and one waiting. On a fast
device more on paper: half of the positions are with the searches at any time, and young trees send less."""

LARGEST_STEPS, LARGE_POOLED_TREE = 3, 32
"""Where searches look ahead, those whose tree has LARGE_POOLED_TREE visits for each position of a step want
so many times as many."""

FEW_POSITIONS = 4
"""So many at a time weaken no search: it begins with as many."""

FEW_SEARCHES_POSITIONS = 64
"""Few searches send FEW_POSITIONS each until they are so many together, or each device batch and each request
would carry one or two."""


@dataclass(frozen=True, slots=True)
class Device:
    """What a search knows of the device that evaluates for it.

    best: the batch that it computes efficiently. most: the largest that its evaluator takes. curve: measured
    (batch, ms), ascending; empty if nothing was measured.
    """

    best: int
    most: int
    curve: Sequence[tuple[int, float]] = ()

    @property
    def rate(self) -> float:
        """Positions per second that its curve promises; 0 if nothing was measured."""
        return best_rate(self.curve)

    @classmethod
    def together(cls, devices: Sequence[Device]) -> Device:
        """Several devices, at least one, that share the work of many searches, as one: so many positions as
        all of them compute in a time. The largest request is one that each of them takes."""
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
        """The largest batch that was measured to take no longer; 0 if there is none."""
        return max((size for size, ms in self.curve if ms <= milliseconds), default=0)

    def milliseconds(self, size: int) -> float:
        """What a batch takes, between the sizes that were measured; 0 if none was."""
        if not self.curve:
            return 0.0
        at = bisect_left(self.curve, size, key=lambda point: point[0])
        if at == 0:
            return self.curve[0][1]
        if at == len(self.curve):
            largest, ms = self.curve[-1]
            return ms * size / largest
        (low, low_ms), (high, high_ms) = self.curve[at - 1 : at + 1]
        return low_ms + (high_ms - low_ms) * (size - low) / (high - low)

    @property
    def second_batch(self) -> int:
        """Positions from which on two batches, of which the device has one while the other is on its way, are
        done sooner than one of twice the size."""
        size = SECOND
        while size < self.best and 2 * self.milliseconds(size) > self.milliseconds(2 * size) + CALL_MS:
            size *= 2
        return min(size, self.best)

    @property
    def flat_batch(self) -> int:
        """The batch that it can be filled to at hardly more time than a small batch takes; 0 if there is none
        that is worth it."""
        small = next((ms for size, ms in self.curve if size >= SMALL_BATCH), None)
        if small is None:
            return 0
        most_ms = FLAT * (small + CALL_MS) - CALL_MS
        flat = max((size for size, ms in self.curve if size >= SMALL_BATCH and ms <= most_ms), default=0)
        return min(flat, MOST_AHEAD) if flat >= 2 * SMALL_BATCH else 0

    @property
    def games(self) -> int:
        """How many games at once keep it busy: as many as fill two batches, one at work and one waiting."""
        return max(2, min(MAX_RECOMMENDED_GAMES, ceil(TURNS * self.best / POSITIONS_PER_GAME)))


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Positions per batch.

    best: what the device computes efficiently. curve: measured (batch, ms), ascending. largest: for large
    trees, which have `large_tree` visits for each of `best`; best if 0. filled: a batch that would have fewer
    looks ahead for the others (Tree.collect). share, least: one position is wanted for each `share` visits of
    the tree, at least `least`: in all batches together if `together`, else in each. factor: no more than
    this times the square root of the visits is wanted in all, or one for each 256 of them; 0 sets no such
    limit. in_flight: batches sent before the first is awaited, at most. second: positions that one sent
    besides others has at least where `share` holds for all together.
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
    def capacity(self) -> int:
        """Positions that the largest batch has."""
        return max(self.best, self.largest, self.filled)

    @property
    def rule(self) -> BatchRule:
        """These sizes as the core has them, which does the arithmetic: it asks without the interpreter, too
        (engine/core/exchange)."""
        return BatchRule(
            best=self.best,
            curve=self.curve,
            largest=self.largest,
            filled=self.filled,
            large_tree=self.large_tree,
            share=self.share,
            least=self.least,
            together=self.together,
            factor=self.factor,
            in_flight=self.in_flight,
            second=self.second,
        )

    def in_tree(self, visits: int) -> int:
        """The batch for a tree with so many visits. Where the positions in flight are few among them anyway,
        larger batches do the search no harm, and what a batch costs besides the device is paid more rarely.
        """
        return self.rule.in_tree(visits)

    def wanted(self, visits: int, under_way: int) -> int:
        """Positions to ask for next in a tree with so many visits, besides those looked ahead to.

        under_way: visits whose evaluations are awaited.
        """
        return self.rule.wanted(visits, under_way)

    def fitting(self, milliseconds: float) -> int:
        """The largest batch that is computed in that time; at least 1."""
        return self.rule.fitting(milliseconds)

    @classmethod
    def alone(cls, device: Device, options: Options, limits: Limits) -> BatchSizes:
        """For a search that has the device to itself, as far as it knows: filled where the device's time is
        flat. Twice the device's best batch for large trees, if that is quick enough."""
        best = min(device.best, device.most)
        sizes = cls(
            best, device.curve, _doubled(best, device), device.flat_batch, in_flight=options.batches_in_flight
        )
        return sizes._with_options(device, options, limits)

    @classmethod
    def pooled(
        cls, device: Device, options: Options, limits: Limits, searches: int, processes: int
    ) -> BatchSizes:
        """For one of so many searches in so many processes that share the device.

        While one waits for its answer the device is busy with the others', so each has one batch in flight.
        """
        if searches < 2:
            return cls.alone(device, options, limits)
        best = min(positions_per_step(device, searches), device.most)
        filled = filled_step(device, searches, processes)
        largest = min(LARGEST_STEPS * best, filled)
        sizes = cls(best, device.curve, largest, filled, LARGE_POOLED_TREE, in_flight=1)
        return sizes._with_options(device, options, limits)

    def _with_options(self, device: Device, options: Options, limits: Limits) -> BatchSizes:
        """These sizes with what the options of batching say, and with the part of the tree that goes with
        them. A size that the user has fixed is not filled unasked."""
        sizes = self
        if options.minibatch_size:
            fixed = min(options.minibatch_size, device.most)
            sizes = replace(sizes, best=fixed, largest=fixed, filled=0)
        if options.look_ahead >= 0:
            sizes = replace(sizes, filled=min(options.look_ahead, device.most))
        if sizes.filled or options.visits_per_position:
            share = options.visits_per_position or (SHARE_BY_NODES if limits.by_nodes else SHARE)
            factor = options.under_way_factor
            if factor < 0:
                factor = FACTOR_BY_NODES if limits.by_nodes else FACTOR
            second = options.second_batch or device.second_batch
            sizes = replace(sizes, share=share, least=LEAST, together=True, factor=factor, second=second)
        return sizes


def _doubled(best: int, device: Device) -> int:
    """Twice the best batch, if the device takes it and is quick enough at it; else the best batch."""
    curve = device.curve
    size, ms = next((point for point in curve if point[0] >= 2 * best), curve[-1] if curve else (1, 0.0))
    quick = ms * max(1.0, 2 * best / size) <= LARGE_BATCH_MS
    return min(2 * best, device.most) if quick else best


def positions_per_step(device: Device, searches: int) -> int:
    """How many positions each of so many searches wants at a time, at most.

    Together they are to keep two batches of the recommended size on their way, one at work and one waiting. A
    longer queue gains nothing: it delays answers and weakens searches. Only where that would mean too many
    steps, or too small ones, are they larger.
    """
    fair = ceil(TURNS * device.best / searches)
    few = min(FEW_POSITIONS, ceil(FEW_SEARCHES_POSITIONS / searches))
    least = min(MAX_POSITIONS_PER_STEP, max(few, ceil(device.rate / STEPS_PER_SECOND)))
    return max(1, min(device.best, max(fair, least)))


def filled_step(device: Device, searches: int, processes: int) -> int:
    """How many positions each of so many searches in so many processes sends at a time, with those that it
    looks ahead to; 0 if it does not look ahead.

    What a tree of some hundred visits wants at a time does not come to the two batches that keep a fast
    device busy, so there each search looks ahead as far as it takes. On others, together they fill what is
    flat.
    """
    if not device.flat_batch:
        return 0
    if device.rate >= FAST_DEVICE * processes:
        return min(ceil(TURNS_ON_FAST * device.best / searches), MAX_FILLED, device.most)
    filled = device.flat_batch // searches
    return filled if filled > LEAST else 0

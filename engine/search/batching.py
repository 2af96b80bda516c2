"""How many positions a search asks for at a time: what the tree bears, and what the device is quick at.

Positions under way are chosen without the values of the others, so they are worse the larger a part of the
tree they are. A device with many processors takes hardly longer for many positions than for few. Where it
does, the search asks for few and fills the batch by looking ahead: with positions that it will probably want
next, whose evaluations go to the cache and count for nothing until it does (Tree.collect). Where time is
proportional to positions, as on a CPU, looking ahead would only cost. docs/batching.md has what this was
measured to bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LARGE_TREE = 64
"""A tree with this many visits for each position of the best batch is large (BatchSizes.in_tree)."""

LARGE_BATCH_MS = 100.0
"""Longest time of the larger batches of large trees."""

SMALL_BATCH = 8
"""Positions of a small batch, whose time others are compared with."""

FLAT = 1.3
"""A batch is as good as free to fill while it takes at most this many times what a small one takes."""

MOST_AHEAD = 64
"""Largest batch that is filled by looking ahead: each position costs the search's own processor time."""

SHARE, LEAST = 32, 2
"""Where batches are filled: visits of the tree for each position wanted, and positions wanted at least."""

SHARE_UNFILLED, LEAST_UNFILLED = 4, 4
"""The same for each batch where they are not filled."""


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Positions per batch.

    best: what the device computes efficiently. curve: measured (batch, ms), ascending. largest: for large
    trees, which have `large_tree` visits for each of `best`; best if 0. filled: a batch that would have fewer
    looks ahead for the others (Tree.collect). sparing: what is under way is a small part of the tree, in all
    batches together. fixed: positions of every batch, 0 if they are for this to choose.
    """

    best: int
    curve: Sequence[tuple[int, float]] = ()
    largest: int = 0
    filled: int = 0
    large_tree: int = LARGE_TREE
    sparing: bool = False
    fixed: int = 0

    @property
    def capacity(self) -> int:
        """Positions that the largest batch has."""
        return self.fixed or self._most

    @property
    def _most(self) -> int:
        return max(self.best, self.largest, self.filled)

    def in_tree(self, visits: int) -> int:
        """The batch for a tree with so many visits. Where the positions in flight are few among them anyway,
        larger batches do the search no harm, and what a batch costs besides the device is paid more rarely.
        """
        return max(self.best, self.largest) if visits >= self.large_tree * self.best else self.best

    def wanted(self, visits: int, under_way: int) -> int:
        """Positions to ask for next in a tree with so many visits, besides those looked ahead to.

        under_way: positions whose evaluations are awaited. 0: none, until some are there.
        """
        best = self.fixed or self.in_tree(visits)
        if not self.sparing:
            return min(best, max(LEAST_UNFILLED, visits // SHARE_UNFILLED))
        if not under_way:
            return min(best, max(LEAST, visits // SHARE))
        # Another batch beside those under way is worth its cost only if the device computes it efficiently.
        return best if visits // SHARE - under_way >= best else 0

    @classmethod
    def of(
        cls, best: int, most: int, curve: Sequence[tuple[int, float]], *, fixed: int = 0, ahead: bool = False
    ) -> BatchSizes:
        """For an evaluator that recommends `best` and takes `most`: twice as many for large trees, if that is
        quick enough. fixed: as above. ahead: whether batches may be filled, if the device's time is flat."""
        best = min(best, most)
        size, ms = next((point for point in curve if point[0] >= 2 * best), curve[-1] if curve else (1, 0.0))
        quick = ms * max(1.0, 2 * best / size) <= LARGE_BATCH_MS
        largest = min(2 * best, most) if quick else best
        filled = min(flat_batch(curve), most) if ahead and not fixed else 0
        return cls(best, curve, largest, filled, sparing=filled > 0, fixed=fixed)

    def fitting(self, milliseconds: float) -> int:
        """The largest batch that is computed in that time; at least 1."""
        sizes = [size for size, ms in self.curve if ms <= milliseconds]
        return self._most if not self.curve else max(1, min(self._most, max(sizes, default=1)))


def flat_batch(curve: Sequence[tuple[int, float]]) -> int:
    """The batch that a device can be filled to at hardly more time than a small batch takes; 0 if there is
    none that is worth it. curve: measured (batch, ms), ascending."""
    small = next((ms for size, ms in curve if size >= SMALL_BATCH), None)
    if small is None:
        return 0
    flat = max((size for size, ms in curve if size >= SMALL_BATCH and ms <= FLAT * small), default=0)
    return min(flat, MOST_AHEAD) if flat >= 2 * SMALL_BATCH else 0

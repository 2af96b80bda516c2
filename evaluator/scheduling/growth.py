# SPDX-License-Identifier: GPL-3.0-or-later
"""Growth of a latency curve: its measured part, and the next batch size to try.

The first measurement is short, and other programs may disturb it. So a curve grows in use: the next size of
the ladder is tried until the throughput stops growing or the device's limit is reached. Sizes measured on a
busy machine are doubted and tried again. Pure: no clock, no locks. The batch policy tries sizes on deep
queues, devices/trials.py on idle devices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

FLAT_STEPS = 3
"""Number of sizes without growth after which the throughput counts as flat."""

GROWTH = 1.02
"""Minimum factor over the best throughput so far that counts as growth."""

TRIES = 3
"""Runs per tried size; the median counts. A batch whose end is noticed late seems longer, and the next one
shorter."""

RETRY_TIMES = 20.0
"""A retry on a queue waits until other batches have taken this many times its time: at most 5 % of the
device. Each further round of retries waits twice as long."""

MOST_ROUNDS = 16
"""Number of rounds after which the wait stops doubling."""


class Growth:
    """The measured part of a curve.

    steps: sizes to measure, ascending; the last is the device's largest batch. points: measured {batch:
    milliseconds}. doubted: sizes measured on a busy machine.
    """

    def __init__(
        self, steps: Sequence[int], points: Mapping[int, float], doubted: Collection[int] = ()
    ) -> None:
        self._steps = tuple(steps)
        self.points = dict(points)
        self.doubted = set(doubted)
        self._runs: dict[int, list[float]] = {}
        self._disturbed: set[int] = set()
        self._grown: set[int] = set()
        """Sizes that were tried in use, when the device may have been shared."""
        self._rounds: dict[int, int] = {}
        self.spent_ms = 0.0
        """Device time of all batches since the start."""
        self.retry_at_ms = 0.0
        """Value of spent_ms from which a deep queue may retry a size."""
        self._plan()

    @property
    def measured(self) -> int:
        """The largest measured size."""
        return max(self.points)

    @property
    def largest(self) -> int:
        """The largest batch of the device."""
        return max(self._steps[-1], self.measured)

    def trial(self) -> int | None:
        """Return the size to try now on a deep queue; None if none is due."""
        if self._urgent:
            return self.next_step
        if self._queue_retry is not None and self.spent_ms >= self.retry_at_ms:
            return self._queue_retry
        return None

    def idle_trial(self) -> int | None:
        """Return the size to try on an idle device; None if all are known."""
        return self.next_step if self._urgent else self._idle_retry

    def ran(self, size: int, milliseconds: float, *, busy: bool) -> bool:
        """Record a batch of exactly `size` positions. Returns True if the measured points have changed.

        busy: other programs kept the machine busy.
        """
        self.spent_ms += milliseconds
        if size != self.next_step and size not in self.doubted:
            return False
        runs = self._runs.setdefault(size, [])
        runs.append(milliseconds)
        if busy:
            self._disturbed.add(size)
        if len(runs) < TRIES:
            return False
        self._measured(size, runs)
        return True

    def refuse(self, size: int) -> None:
        """Note that the device fails with `size` positions, so that this size is never tried again."""
        self._steps = tuple(step for step in self._steps if step < size) or (self.measured,)
        self._plan()

    def _measured(self, size: int, runs: list[float]) -> None:
        if not self._urgent:
            rounds = self._rounds[size] = min(MOST_ROUNDS, self._rounds.get(size, 0) + 1)
            self.retry_at_ms = self.spent_ms + RETRY_TIMES * sum(runs) * 2 ** (rounds - 1)
        milliseconds = sorted(runs)[TRIES // 2]
        self._grown.add(size)
        if size in self._disturbed:
            self.doubted.add(size)
            milliseconds = min(milliseconds, self.points.get(size, milliseconds))  # others only lengthen it
        else:
            self.doubted.discard(size)
        self.points[size] = milliseconds
        del self._runs[size]
        self._disturbed.discard(size)
        self._plan()

    def _plan(self) -> None:
        """Decide what is tried next."""
        sizes = sorted(self.points)
        step = next((step for step in self._steps if step > sizes[-1]), None)
        flat = is_flat(self.points)
        best = max(sizes, key=lambda size: size / self.points[size])
        if flat and best in self._grown and not self._rounds.get(best):
            self.doubted.add(best)  # one too short time would end the growth permanently
        # A dip measured on a busy machine must not end the growth.
        doubtful = best in self.doubted or not self.doubted.isdisjoint(sizes[-FLAT_STEPS:])
        self.next_step = None if flat and not doubtful else step
        """The next size beyond the measured ones; None if the throughput no longer grows."""
        self._urgent = self.next_step is not None and not flat
        retries = [*self.doubted] if self.next_step is None else [*self.doubted, self.next_step]

        def first(candidates: list[int]) -> int | None:
            # Large sizes first: they determine the maximum batch.
            return min(candidates, key=lambda size: (self._rounds.get(size, 0), -size), default=None)

        self._idle_retry = first(retries)
        # A deep queue has no use for much smaller batches.
        self._queue_retry = first([size for size in retries if 2 * size >= best])
        self.known = self.next_step is None and not self.doubted
        """True if no size is left to try."""


def is_flat(points: Mapping[int, float]) -> bool:
    """Return True if the throughput has not grown over the last FLAT_STEPS sizes. points: {batch: ms}."""
    best_rate, flat = 0.0, 0
    for size, ms in sorted(points.items()):
        flat = 0 if size / ms > GROWTH * best_rate else flat + 1
        best_rate = max(best_rate, size / ms)
    return flat >= FLAT_STEPS

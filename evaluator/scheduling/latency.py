# SPDX-License-Identifier: GPL-3.0-or-later
"""The latency model: measured milliseconds of a device per batch, for any size.

Measured on a ladder of sizes (calibration.py), interpolated between them, and corrected by every batch. It
yields the knee (the batch that clients should gather) and the drain time (a queue's time with the best cuts),
which the batch policy uses.

A slower time may be due to the device or to other work on the machine, and only sizes that run are corrected.
So the batch policy uses current times; the knee and the cache use the shortest time of each size.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from evaluator.scheduling.growth import Growth
from protocol.wire.messages import Curve

LADDER = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""Measured batch sizes; each is at most 1.5 times the previous one from 16 on."""

KNEE_TOLERANCE = 0.05
"""The knee is the smallest batch within this fraction of the best throughput."""

KNEE_MS = 100.0
"""Maximum time of the knee's batch, unless every batch takes longer. A client that gathers more is answered
too late for play, and on a CPU the throughput hardly grows beyond it."""

LEARNING_RATE = 0.05
"""Weight of one observed batch in the moving averages."""

OUTLIER_RATIO = 1.5
"""Limit of one observation's effect, as a factor. A machine that swapped for a second must not teach the
model that the device is slow."""

LAUNCH_MS = 0.1
"""The service's own time per batch (merging, handing over, splitting): a cut must save more than this."""

LAUNCH_ON_CPU_MS = 0.5
"""The same if service and engine share the device's cores: about 1 ms of one core per request in total,
mostly for caches that the network has evicted."""

REBUILD_OBSERVATIONS = 64
"""Number of observed batches between rebuilds of the tables."""


RELAXATION = 0.25
"""Share by which the average of a size that did not run returns to its shortest at each rebuild. So a size
that was slow once is tried again."""


def steps_to(largest: int) -> tuple[int, ...]:
    """Return the sizes of the ladder up to a device's largest batch, and that size itself."""
    return (*(size for size in LADDER if size < largest), largest)


class LatencyModel:
    """Milliseconds per batch on one device. Pure: no clock, no locks; its owner serialises access.

    points: measured {batch: milliseconds}, at least one. max_batch: largest batch to run. buckets: sizes that
    the device runs, to which batches are padded; empty if any size runs as it is. Beyond the largest measured
    size the time grows along the last segment, but with constant throughput at best. launch_ms: overhead per
    batch. growth: decides on unmeasured sizes; max_batch then is its next size. Without it the curve ends at
    max_batch. observations: number of batches used for corrections.
    """

    def __init__(
        self,
        points: Mapping[int, float],
        max_batch: int,
        buckets: Iterable[int] = (),
        launch_ms: float = LAUNCH_MS,
        growth: Growth | None = None,
    ) -> None:
        if not points or any(size < 1 or not 0 < ms < math.inf for size, ms in points.items()):
            raise ValueError("a latency model needs positive sizes and finite positive milliseconds")
        self.max_batch = max_batch
        self.launch_ms = launch_ms
        self.growth = growth
        self._all_buckets = tuple(buckets)
        self._set_buckets()
        self._sizes = sorted(points)
        self._log_ms = [math.log(points[size]) for size in self._sizes]
        self._shortest_log_ms = list(self._log_ms)
        self._measured = self._sizes[-1]
        self._ran: set[int] = set()
        """Indices in `_sizes` corrected since the last rebuild of the tables."""
        self.observations = 0
        self.version = 0
        """Changes whenever the times change."""
        self.trial: int | None = None
        """The size that a deep queue should try now; None if there is none."""
        self.known = growth is None
        """True if no size is left to measure or to repeat."""
        self._rebuild()
        if growth is not None:
            self._grow()

    def milliseconds(self, batch: int) -> float:
        """Return the expected time of one batch in milliseconds."""
        return self._ms[min(batch, self.max_batch)]

    def drain_ms(self, positions: int) -> float:
        """Return the expected time of a number of positions with the best cuts, with launch_ms for every
        batch after the first."""
        if positions <= self.max_batch:
            return self._drain[positions]
        whole, rest = divmod(positions, self._best_batch)
        return whole * (self.milliseconds(self._best_batch) + self.launch_ms) + self._drain[rest]

    def within(self, milliseconds: float) -> int:
        """Return how many positions can be drained in a time: the most whose drain_ms minus one launch is not
        longer."""
        whole, rest = 0, milliseconds
        if milliseconds >= self._drain[self.max_batch]:
            each_ms = self.milliseconds(self._best_batch) + self.launch_ms
            whole = int(milliseconds / each_ms)
            rest -= whole * each_ms
        return whole * self._best_batch + bisect.bisect_right(self._drain, rest) - 1

    def throughput(self, batch: int) -> float:
        """Return positions per second in batches of a size."""
        return 1000.0 * batch / self.milliseconds(batch)

    @property
    def measured(self) -> int:
        """The largest measured size within max_batch."""
        return min(self.max_batch, self._measured)

    @property
    def largest(self) -> int:
        """The largest batch of the device."""
        return self.max_batch if self.growth is None else self.growth.largest

    @property
    def extent(self) -> str:
        """The measured part of the curve in words: "up to 64 of 1024"."""
        return f"up to {self.measured} of {self.largest}"

    def shortest(self) -> dict[int, float]:
        """Return the lowest average of each measured size in milliseconds."""
        return {
            size: math.exp(log_ms)
            for size, log_ms in zip(self._sizes, self._shortest_log_ms, strict=True)
            if size <= self._measured
        }

    def curve(self) -> Curve:
        """Return (batch, milliseconds) at the measured sizes, with corrections."""
        return tuple((size, round(self._ms[size], 4)) for size in self._sizes if size <= self.measured)

    def observe(self, batch: int, milliseconds: float, *, busy: bool = False) -> bool:
        """Correct the model by an observed batch. Returns True if a size was measured by it.

        The averages of the two nearest measured sizes move by the ratio of observed to expected time,
        weighted by distance. busy: other programs kept the machine busy.
        """
        if milliseconds <= 0 or not 1 <= batch <= self.max_batch:
            return False
        limit = math.log(OUTLIER_RATIO)
        size = self._buckets[bisect.bisect_left(self._buckets, batch)] if self._padded else batch
        # Compare with the current averages, not the tables. The tables are rebuilt only at intervals, so the
        # same error would be corrected repeatedly.
        change = max(-limit, min(limit, math.log(milliseconds / self._expected(size))))
        above = bisect.bisect_left(self._sizes, size)
        self._ran |= {max(0, above - 1), min(above, len(self._sizes) - 1)}
        if above == len(self._sizes):
            self._log_ms[-1] += LEARNING_RATE * change
        elif above == 0 or self._sizes[above] == size:
            self._log_ms[above] += LEARNING_RATE * change
        else:
            low, high = self._sizes[above - 1], self._sizes[above]
            share = (size - low) / (high - low)
            self._log_ms[above] += LEARNING_RATE * share * change
            self._log_ms[above - 1] += LEARNING_RATE * (1 - share) * change
        self.observations += 1
        growth = self.growth
        if growth is not None and not self.known:
            if size != growth.next_step and size not in growth.doubted:
                growth.spent_ms += milliseconds
            elif growth.ran(size, milliseconds, busy=busy):
                self._grow(size)
                return True
            if self.trial is None and growth.spent_ms >= growth.retry_at_ms:
                self.trial = growth.trial()
        if self.observations % REBUILD_OBSERVATIONS == 0:
            self._rebuild()
        return False

    def refuse(self, batch: int) -> None:
        """Note that the device fails with `batch` positions: never run that many again unless measured
        before."""
        if self.growth is not None and batch > self._measured:
            self.growth.refuse(batch)
            self._grow()

    def _grow(self, changed: int | None = None) -> None:
        """Update the measured extent, and set the time of the next size to the extrapolated one.

        changed: size that was measured, for the first time or again.
        """
        growth = self.growth
        assert growth is not None
        averages = zip(self._sizes, self._log_ms, self._shortest_log_ms, strict=True)
        known = {size: (log_ms, shortest) for size, log_ms, shortest in averages if size <= self._measured}
        if changed is not None:
            new = math.log(growth.points[changed])
            known[changed] = new, new
        self._measured, step = growth.measured, growth.next_step
        self.trial, self.known = growth.trial(), growth.known
        self._sizes = sorted(known)
        self._log_ms = [known[size][0] for size in self._sizes]
        self._shortest_log_ms = [known[size][1] for size in self._sizes]
        self.max_batch = step or self._measured
        self._set_buckets()
        self._rebuild()
        if step is not None:
            # Batches between the measured sizes and this one correct its time; it starts without a gain.
            self._sizes.append(step)
            self._log_ms.append(math.log(self._ms[step]))
            self._shortest_log_ms.append(self._log_ms[-1])

    def _expected(self, size: int) -> float:
        above = bisect.bisect_left(self._sizes, size)
        if above == len(self._sizes):
            ratio = self.milliseconds(size) / self.milliseconds(self._sizes[-1])
            return math.exp(self._log_ms[-1]) * ratio
        high_ms = math.exp(self._log_ms[above])
        if above == 0 or self._sizes[above] == size:
            return high_ms
        low, high = self._sizes[above - 1], self._sizes[above]
        low_ms = math.exp(self._log_ms[above - 1])
        return low_ms + (high_ms - low_ms) * (size - low) / (high - low)

    def _rebuild(self) -> None:
        self._shortest_log_ms = list(map(min, self._shortest_log_ms, self._log_ms))
        for place in range(len(self._sizes)):
            if place not in self._ran:
                self._log_ms[place] -= RELAXATION * (self._log_ms[place] - self._shortest_log_ms[place])
        self._ran.clear()
        self.version += 1
        sizes = np.arange(self.max_batch + 1, dtype=np.float64)
        measured = np.array(self._sizes, dtype=np.float64)
        # A larger batch cannot be faster; if it seemed so, the smaller one was measured badly.
        times = np.minimum.accumulate(np.exp(self._log_ms)[::-1])[::-1]
        ms: NDArray[np.float64] = np.interp(sizes, measured, times)
        slope = float(times[-1] / measured[-1])
        if len(measured) > 1:
            slope = max(slope, float((times[-1] - times[-2]) / (measured[-1] - measured[-2])))
        beyond = sizes > measured[-1]
        ms[beyond] = times[-1] + slope * (sizes[beyond] - measured[-1])
        if self._padded:
            buckets = np.array(self._buckets)
            ms[1:] = ms[buckets[np.searchsorted(buckets, np.arange(1, self.max_batch + 1))]]
        ms[0] = 0.0
        # Lists, because reading one element of an array takes as long as the rest of a decision.
        self._ms: list[float] = ms.tolist()
        candidates = {size for size in (*self._sizes, *self._buckets) if size <= self.max_batch}
        self.ladder = tuple(sorted(candidates))
        """Sizes that may be worth cutting at: the measured ones and the device's buckets, within
        max_batch."""
        rates = {size: size / self._ms[size] for size in self.ladder}
        self._best_batch = max(rates, key=lambda size: rates[size])
        self._find_knee()
        # The cheapest cuts for any number of positions. Optionally taking 1, 2, 4, … pieces of a size reaches
        # any count of them.
        drain = ms.copy()
        for cut in self.ladder:
            size, cost = cut, self._ms[cut]
            while size < self.max_batch:
                after = drain[1 : self.max_batch + 1 - size]
                np.minimum(drain[size + 1 :], cost + self.launch_ms + after, out=drain[size + 1 :])
                size, cost = 2 * size, 2 * cost + self.launch_ms
        self._drain: list[float] = drain.tolist()

    def _find_knee(self) -> None:
        times = np.minimum.accumulate(np.exp(self._shortest_log_ms)[::-1])[::-1]
        sizes = zip(self._sizes, times, strict=True)
        known = {size: float(ms) for size, ms in sizes if size <= self.measured}
        if not known:
            known[self.max_batch] = 1.0
        quick = {size: ms for size, ms in known.items() if ms <= KNEE_MS} or dict([min(known.items())])
        good = self._good(known)
        self.knee = min(self._good(quick))
        """The smallest measured batch within KNEE_TOLERANCE of the best throughput within KNEE_MS, by the
        shortest times and with launch_ms per batch."""
        self.full = min(good)
        """The smallest measured batch within KNEE_TOLERANCE of the best throughput, without a time limit."""
        self.ceiling = max(good)
        """The largest measured batch within KNEE_TOLERANCE of the best throughput."""

    def _good(self, times: Mapping[int, float]) -> list[int]:
        """Return the sizes within KNEE_TOLERANCE of the best throughput."""
        rates = {size: size / (ms + self.launch_ms) for size, ms in times.items()}
        enough = (1 - KNEE_TOLERANCE) * max(rates.values())
        return [size for size, rate in rates.items() if rate >= enough]

    def _set_buckets(self) -> None:
        most = self.max_batch
        self._buckets = sorted({bucket for bucket in self._all_buckets if bucket < most} | {most})
        self._padded = len(self._buckets) > 1

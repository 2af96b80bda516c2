# SPDX-License-Identifier: GPL-3.0-or-later
"""The measured latency model: how many milliseconds a device takes for a batch of any size.

Measured on a ladder of sizes (calibration.py), interpolated between them, corrected by every batch
that runs. From it come the knee (what clients are asked to gather) and the drain time (how long a queue
takes when it is cut in the best way), which the batch policy weighs.

A correction that slows a size down may be the device's doing or that of other work on the machine, and only
the sizes that run are corrected. The batch policy goes by the times as they are at present; the knee, and
what is kept for the next start, by the shortest that each size has had.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from evaluator.scheduling.growth import Growth
from protocol.messages import Curve

LADDER = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""Batch sizes that are measured: at most half as much again from one to the next."""

KNEE_TOLERANCE = 0.05
"""The knee is the smallest batch within this fraction of the best throughput."""

KNEE_MS = 100.0
"""Batches that take longer are no knee, whatever their throughput, unless every batch does: a client that
gathers as many is answered too late to play by it, and on a CPU the throughput hardly grows any more."""

LEARNING_RATE = 0.05
"""Weight of one observed batch in the moving averages."""

OUTLIER_RATIO = 1.5
"""One observation moves an average as if it were at most this factor away: a machine that swapped for a
second must not teach the model that the device is slow."""

LAUNCH_MS = 0.1
"""What the service itself spends on each device batch (merging, handing over, splitting): a cut has to save
more than this."""

LAUNCH_ON_CPU_MS = 0.5
"""The same where service and engine take that time from the device itself, and the rest of what a request
costs them with it: about a millisecond of one core, most of it for caches that the network has swept."""

REBUILD_OBSERVATIONS = 64
"""The tables are made anew after this many observed batches."""


RELAXATION = 0.25
"""Share of the way by which the average of a size that did not run returns to its shortest, each time the
tables are made anew: a size that was slow once is tried again."""


def steps_to(largest: int) -> tuple[int, ...]:
    """The sizes of the ladder up to the largest batch of a device, and that one itself."""
    return (*(size for size in LADDER if size < largest), largest)


class LatencyModel:
    """Milliseconds per batch on one device. Pure: no clock, no locks; its owner serialises access.

    points: measured {batch: milliseconds}, at least one. max_batch: the largest batch that is run.
    buckets: sizes that the device really runs, a batch being padded to the next one; empty when any size runs
    as it is. Beyond the largest measured size the time grows along the last segment, but the throughput is
    not taken to grow any further.
    launch_ms: what each batch costs besides. growth: what becomes of sizes that were not measured; max_batch
    then is its next size. Without it the curve ends with max_batch.
    observations: batches it was corrected by.
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
        """Places in `_sizes` that were corrected since the tables were made."""
        self.observations = 0
        self.version = 0
        """Another number whenever the times that it gives have changed."""
        self._rebuild()
        if growth is not None:
            self._grow()

    def milliseconds(self, batch: int) -> float:
        """The expected time of one batch, in milliseconds."""
        return self._ms[min(batch, self.max_batch)]

    def drain_ms(self, positions: int) -> float:
        """Expected time of that many positions when cut into batches in the best way, with launch_ms for
        every batch after the first."""
        if positions <= self.max_batch:
            return self._drain[positions]
        whole, rest = divmod(positions, self._best_batch)
        return whole * (self.milliseconds(self._best_batch) + self.launch_ms) + self._drain[rest]

    def within(self, milliseconds: float) -> int:
        """How many positions can be drained in that time: the most whose drain_ms is not longer, but for
        one launch."""
        whole, rest = 0, milliseconds
        if milliseconds >= self._drain[self.max_batch]:
            each_ms = self.milliseconds(self._best_batch) + self.launch_ms
            whole = int(milliseconds / each_ms)
            rest -= whole * each_ms
        return whole * self._best_batch + bisect.bisect_right(self._drain, rest) - 1

    def throughput(self, batch: int) -> float:
        """Positions per second in batches of that size."""
        return 1000.0 * batch / self.milliseconds(batch)

    @property
    def ladder(self) -> tuple[int, ...]:
        """Sizes worth considering as a cut: the measured ones and the device's own, within max_batch."""
        return self._cuts

    @property
    def knee(self) -> int:
        """The smallest measured batch within KNEE_TOLERANCE of the best throughput that KNEE_MS allow, by the
        shortest times and with launch_ms for each batch."""
        return self._knee

    @property
    def full(self) -> int:
        """The smallest measured batch within KNEE_TOLERANCE of the best throughput, however long it takes."""
        return self._full

    @property
    def ceiling(self) -> int:
        """The largest measured batch within KNEE_TOLERANCE of the best throughput."""
        return self._ceiling

    @property
    def measured(self) -> int:
        """The largest measured size that is run."""
        return min(self.max_batch, self._measured)

    @property
    def largest(self) -> int:
        """The largest batch of the device."""
        return self.max_batch if self.growth is None else self.growth.largest

    @property
    def known(self) -> bool:
        """Whether no size is left to measure, for the first time or again."""
        return self.growth is None or self.growth.known

    @property
    def extent(self) -> str:
        """How far the curve is measured, in words: "up to 64 of 1024"."""
        return f"up to {self.measured} of {self.largest}"

    @property
    def trial(self) -> int | None:
        """The size that a deep queue should try now; None if there is none."""
        return None if self.growth is None else self.growth.trial()

    def shortest(self) -> dict[int, float]:
        """The least milliseconds that each measured size has had, as an average."""
        return {
            size: math.exp(log_ms)
            for size, log_ms in zip(self._sizes, self._shortest_log_ms, strict=True)
            if size <= self._measured
        }

    def curve(self) -> Curve:
        """(batch, milliseconds) at the measured sizes, as corrected since."""
        return tuple((size, round(self._ms[size], 4)) for size in self._sizes if size <= self.measured)

    def observe(self, batch: int, milliseconds: float, *, disturbed: bool = False) -> None:
        """Correct the model by a batch that has run.

        The averages of the two measured sizes around it move by the ratio of observed to expected time, each
        in proportion to how near it is. disturbed: other programs kept the machine busy meanwhile.
        """
        if milliseconds <= 0 or not 1 <= batch <= self.max_batch:
            return
        limit = math.log(OUTLIER_RATIO)
        size = self._run_size(batch)
        # Against the averages as they are now, not the tables: these are rebuilt only now and then, and
        # going by them would correct the same error again and again.
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
        if self.growth is not None and self.growth.ran(size, milliseconds, disturbed=disturbed):
            self._grow(size)
        elif self.observations % REBUILD_OBSERVATIONS == 0:
            self._rebuild()

    def refuse(self, batch: int) -> None:
        """Never run that many positions again unless as many were measured: the device fails on them."""
        if self.growth is not None and batch > self._measured:
            self.growth.refuse(batch)
            self._grow()

    def _grow(self, changed: int | None = None) -> None:
        """Take over how far the curve is measured, with the next size at the time that the others promise.

        changed: the size that was measured, for the first time or again.
        """
        growth = self.growth
        assert growth is not None
        averages = zip(self._sizes, self._log_ms, self._shortest_log_ms, strict=True)
        known = {size: (log_ms, shortest) for size, log_ms, shortest in averages if size <= self._measured}
        if changed is not None:
            new = math.log(growth.points[changed])
            known[changed] = new, new
        self._measured, step = growth.measured, growth.next_step
        self._sizes = sorted(known)
        self._log_ms = [known[size][0] for size in self._sizes]
        self._shortest_log_ms = [known[size][1] for size in self._sizes]
        self.max_batch = step or self._measured
        self._set_buckets()
        self._rebuild()
        if step is not None:
            # What runs between the measured sizes and this one corrects it; so far it promises nothing.
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

    def _run_size(self, batch: int) -> int:
        return self._buckets[bisect.bisect_left(self._buckets, batch)] if self._padded else batch

    def _rebuild(self) -> None:
        self._shortest_log_ms = list(map(min, self._shortest_log_ms, self._log_ms))
        for place in range(len(self._sizes)):
            if place not in self._ran:
                self._log_ms[place] -= RELAXATION * (self._log_ms[place] - self._shortest_log_ms[place])
        self._ran.clear()
        self.version += 1
        sizes = np.arange(self.max_batch + 1, dtype=np.float64)
        measured = np.array(self._sizes, dtype=np.float64)
        # A larger batch takes no less time: where it seemed so, the smaller one was measured badly.
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
        # Lists: to take one number out of an array costs as much as the rest of a decision.
        self._ms: list[float] = ms.tolist()
        candidates = {size for size in (*self._sizes, *self._buckets) if size <= self.max_batch}
        self._cuts = tuple(sorted(candidates))
        rates = {size: size / self._ms[size] for size in self._cuts}
        self._best_batch = max(rates, key=lambda size: rates[size])
        self._knee, self._full, self._ceiling = self._find_knee()
        # The cheapest way to cut any number of positions. Taking 1, 2, 4, … pieces of a size, or not, reaches
        # any number of them.
        drain = ms.copy()
        for cut in self._cuts:
            size, cost = cut, self._ms[cut]
            while size < self.max_batch:
                after = drain[1 : self.max_batch + 1 - size]
                np.minimum(drain[size + 1 :], cost + self.launch_ms + after, out=drain[size + 1 :])
                size, cost = 2 * size, 2 * cost + self.launch_ms
        self._drain: list[float] = drain.tolist()

    def _find_knee(self) -> tuple[int, int, int]:
        """The knee, the full batch and the ceiling of a curve; see there."""
        times = np.minimum.accumulate(np.exp(self._shortest_log_ms)[::-1])[::-1]
        sizes = zip(self._sizes, times, strict=True)
        known = {size: float(ms) for size, ms in sizes if size <= self.measured}
        if not known:
            return self.max_batch, self.max_batch, self.max_batch
        quick = {size: ms for size, ms in known.items() if ms <= KNEE_MS} or dict([min(known.items())])
        good = self._good(known)
        return min(self._good(quick)), min(good), max(good)

    def _good(self, times: Mapping[int, float]) -> list[int]:
        """The sizes within KNEE_TOLERANCE of the best throughput of some."""
        rates = {size: size / (ms + self.launch_ms) for size, ms in times.items()}
        enough = (1 - KNEE_TOLERANCE) * max(rates.values())
        return [size for size, rate in rates.items() if rate >= enough]

    def _set_buckets(self) -> None:
        most = self.max_batch
        self._buckets = sorted({bucket for bucket in self._all_buckets if bucket < most} | {most})
        self._padded = len(self._buckets) > 1

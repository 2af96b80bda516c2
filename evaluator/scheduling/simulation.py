"""A discrete-event simulation of one device and many clients, to compare batch policies.

Clients are closed loops, as real ones are: each keeps some batches in flight and sends the next one a while
after an answer. Queues, fairness and our own policy are the service's code; only the device and the clients
are simulated. `python -m evaluator simulate` prints the comparison, docs/batching.md discusses it.
"""

from __future__ import annotations

import heapq
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from evaluator.scheduling.batching import BatchPolicy, LatencyTargets, Launch, Pending, Wait
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.scheduler import Request, Scheduler
from protocol.batch import PositionBatch

CURVES: dict[str, dict[int, float]] = {
    "h200-t82": {1: 1.463, 8: 1.581, 32: 2.317, 64: 3.31, 128: 5.569, 256: 9.501, 512: 17.53, 1024: 33.66},
    "h200-bt4": {1: 1.593, 8: 1.739, 32: 2.85, 64: 4.192, 128: 7.16, 256: 13.11, 512: 24.65, 1024: 48.21},
    "h200-t80": {1: 0.7749, 8: 0.8057, 32: 1.066, 64: 1.43, 128: 2.272, 256: 4.179, 512: 7.531, 1024: 14.09},
    "cpu2-attention": {1: 0.6915, 8: 5.174, 32: 20.62, 64: 42.01},
    "cpu2-resnet": {1: 0.2843, 8: 2.3, 32: 9.795, 64: 20.56},
}
"""Measured milliseconds per batch: lc0 0.33-dev on an H200 (cuda-fp16; T82, BT4 and T80 shapes) and on two
CPU cores (128x4 attention, 64x4 residual)."""

NOISE = 0.03
"""Standard deviation of a batch's time, relative."""


class Policy(Protocol):
    """What the simulation asks of a batch policy; BatchPolicy is one."""

    def arrived(self, client: int, positions: int, rank: int, now_ms: float) -> None: ...
    def replied(self, client: int, now_ms: float) -> None: ...
    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait: ...


class TakeQueued:
    """Takes whatever is queued, up to max_batch, as soon as the device is free."""

    def __init__(self, model: LatencyModel) -> None:
        self.max_batch = model.max_batch

    def arrived(self, client: int, positions: int, rank: int, now_ms: float) -> None:
        """This policy learns nothing from it."""

    def replied(self, client: int, now_ms: float) -> None:
        """This policy learns nothing from it."""

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait:
        return Launch(min(self.max_batch, sum(request.positions for request in pending)))


class FixedBatch(TakeQueued):
    """Waits for a batch of the knee's size, or until the oldest request has waited for the time that such a
    batch takes; as in inference servers with a preferred batch size and a maximum delay."""

    def __init__(self, model: LatencyModel) -> None:
        super().__init__(model)
        self.size = model.knee
        self.timeout_ms = model.milliseconds(model.knee)

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait:
        total = sum(request.positions for request in pending)
        until = min(request.arrived_ms for request in pending) + self.timeout_ms
        if total < self.size and until > now_ms + 1e-9:
            return Wait(until)
        return Launch(min(self.size, total))


class AdditiveIncrease(TakeQueued):
    """A limit on the batch that grows by a little after every batch inside the play target and is halved
    after one beyond it (AIMD; Crankshaw et al.: "Clipper", 2017)."""

    def __init__(self, model: LatencyModel) -> None:
        super().__init__(model)
        self.limit = 1.0
        self.step = 4.0
        self.target_ms = LatencyTargets().play
        self._launched = 0
        self._launched_ms = 0.0
        self._model = model

    def decide(
        self, pending: Sequence[Pending], now_ms: float, busy_until_ms: float | None = None
    ) -> Launch | Wait:
        if self._launched:
            if self._model.milliseconds(self._launched) > self.target_ms:
                self.limit = max(1.0, self.limit / 2)
            elif self._launched >= int(self.limit):
                self.limit = min(self.max_batch, self.limit + self.step)
        self._launched = min(int(self.limit), sum(request.positions for request in pending))
        return Launch(self._launched)


POLICIES: dict[str, Callable[[LatencyModel], Policy]] = {
    "wavefront": BatchPolicy,
    "take-queued": TakeQueued,
    "fixed+timeout": FixedBatch,
    "aimd": AdditiveIncrease,
}
"""Ours, and those it is compared with."""


@dataclass(frozen=True, slots=True)
class Load:
    """Clients of one kind: `count` of class `rank`, each keeping `in_flight` requests of `positions` under
    way and sending the next `think_ms` after an answer (half of that fixed, half exponentially distributed).
    on_ms, off_ms: bursts; silent for off_ms after every on_ms."""

    count: int
    rank: int
    positions: int
    in_flight: int
    think_ms: float
    on_ms: float = 0.0
    off_ms: float = 0.0


def patterns(model: LatencyModel) -> dict[str, list[Load]]:
    """Load patterns, sized for a device: engines gather batches of the knee."""
    knee = model.knee
    gather_ms = 0.3 * model.milliseconds(knee)
    return {
        "one engine": [Load(1, 0, knee, 2, gather_ms)],
        "three engines": [Load(3, 0, knee, 2, gather_ms)],
        "64 self-play games": [Load(64, 2, 4, 1, 0.2)],
        "400 self-play games": [Load(400, 2, 2, 1, 0.2)],
        "engine + self-play": [Load(1, 0, max(1, knee // 4), 2, gather_ms), Load(256, 2, 4, 1, 0.2)],
        "bursts": [Load(4, 1, max(1, knee // 2), 2, gather_ms, on_ms=100.0, off_ms=100.0)],
        "odd sizes": [Load(6, 0, knee // 2 + 1, 1, gather_ms)],
    }


@dataclass(slots=True)
class Outcome:
    """The result of a simulated run. latencies_ms: of every request answered, by class."""

    positions_per_second: float
    mean_batch: float
    latencies_ms: dict[int, list[float]] = field(default_factory=dict)

    def mean_ms(self, rank: int) -> float:
        """Mean latency of a class; NaN if nothing of it was answered."""
        return statistics.fmean(self.latencies_ms[rank]) if self.latencies_ms[rank] else math.nan

    def p99_ms(self, rank: int) -> float:
        """99th percentile of a class's latency; NaN if nothing of it was answered."""
        return float(np.percentile(self.latencies_ms[rank], 99)) if self.latencies_ms[rank] else math.nan


def simulate(
    model: LatencyModel,
    policy: Policy,
    loads: Sequence[Load],
    *,
    duration_ms: float = 4000.0,
    seed: int = 1,
) -> Outcome:
    """Run one policy under one load on a device with that latency. Deterministic for a seed.

    The first tenth of the time does not count.
    """
    random = np.random.default_rng(seed)
    scheduler = Scheduler()
    events: list[tuple[float, int, str, int]] = []
    serial = 0
    kinds = [load for load in loads for _ in range(load.count)]
    in_batch: list[tuple[int, float]] = []
    busy = False
    done, batches, launched = 0, 0, 0
    latencies: dict[int, list[float]] = {load.rank: [] for load in loads}
    warm_ms = duration_ms / 10

    def at(time_ms: float, what: str, client: int = -1) -> None:
        nonlocal serial
        serial += 1
        heapq.heappush(events, (time_ms, serial, what, client))

    def think(load: Load) -> float:
        return load.think_ms / 2 + float(random.exponential(load.think_ms / 2))

    for client, load in enumerate(kinds):
        for _ in range(load.in_flight):
            at(think(load), "send", client)

    while events:
        now, _, what, client = heapq.heappop(events)
        if now > duration_ms:
            break
        if what == "send":
            load = kinds[client]
            period = load.on_ms + load.off_ms
            if period and now % period > load.on_ms:
                at((now // period + 1) * period + think(load), "send", client)
                continue
            serial += 1
            scheduler.add(Request(client, serial, _positions(load.positions), load.rank, now))
            policy.arrived(client, load.positions, load.rank, now)
        elif what == "done":
            busy = False
            for owner, arrived in in_batch:
                policy.replied(owner, now)
                at(now + think(kinds[owner]), "send", owner)
                if now > warm_ms:
                    latencies[kinds[owner].rank].append(now - arrived)
            if now > warm_ms:
                done += launched
                batches += 1
        if busy or not scheduler.positions:
            continue
        decision = policy.decide(scheduler.pending(now, model.max_batch), now)
        if isinstance(decision, Wait):
            at(max(decision.until_ms, now + 1e-3), "look")
            continue
        segments = scheduler.take(decision.positions, now)
        launched = sum(segment.stop - segment.start for segment in segments)
        in_batch = [
            (int(str(s.request.client)), s.request.arrived_ms) for s in segments if s.stop == s.request.count
        ]
        busy = True
        noise = float(np.exp(random.normal(0.0, NOISE)))
        at(now + model.milliseconds(launched) * noise, "done")
    return Outcome(1000.0 * done / (duration_ms - warm_ms), done / max(1, batches), latencies)


def curve_model(name_or_path: str, *, padded: bool = False) -> LatencyModel:
    """The model of a curve in CURVES, or of a file with what `bench --json` prints.

    padded: the device runs only the measured sizes, as one with captured graphs does. Raises ValueError.
    """
    points: Mapping[int, float]
    if name_or_path in CURVES:
        points = CURVES[name_or_path]
    else:
        try:
            content = json.loads(Path(name_or_path).read_text("utf-8"))
            points = {int(point["batch"]): float(point["ms"]) for point in content["curve"]}
        except OSError as error:
            raise ValueError(
                f"{name_or_path}: no such curve ({', '.join(CURVES)}) and no file: {error.strerror}"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"{name_or_path}: not what `bench --json` prints") from None
    return LatencyModel(points, max(points, default=0), points if padded else ())


def _positions(count: int) -> PositionBatch:
    # The scheduler only counts them.
    return PositionBatch(
        positions=np.broadcast_to(np.void(b"\0"), (count,)),
        move_offsets=np.zeros(0, np.uint32),
        moves=np.zeros(0, np.uint16),
    )

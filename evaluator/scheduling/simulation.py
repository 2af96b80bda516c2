"""A discrete-event simulation of one device and many clients, to compare batch policies.

Clients are closed loops, as engines and self-play are: each keeps some batches in flight and sends the next
one a while after an answer. Or they are open: requests come at random, whatever became of those before.
Queues, fairness and our own policy are the service's code; only the device and the clients are simulated.
`python -m evaluator simulate` prints the comparison, docs/batching.md discusses it.
"""

from __future__ import annotations

import heapq
import json
import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from evaluator.scheduling.batching import BatchPolicy, LatencyTargets, Launch, Pending, Wait
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.requests import Request, Segment
from evaluator.scheduling.scheduler import Scheduler
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
    on_ms, off_ms: bursts; silent for off_ms after every on_ms. per_second: if not 0, each client sends so
    many requests a second instead, at random (a Poisson process), and waits for no answer."""

    count: int
    rank: int
    positions: int
    in_flight: int = 1
    think_ms: float = 0.0
    on_ms: float = 0.0
    off_ms: float = 0.0
    per_second: float = 0.0


def patterns(model: LatencyModel) -> dict[str, list[Load]]:
    """Load patterns, sized for a device: engines gather batches of the knee."""
    knee = model.knee
    gather_ms = 0.3 * model.milliseconds(knee)
    game = Load(1, 0, 1, per_second=25.0)
    return {
        "one engine": [Load(1, 0, knee, 2, gather_ms)],
        "three engines": [Load(3, 0, knee, 2, gather_ms)],
        "64 self-play games": [Load(64, 2, 4, 1, 0.2)],
        "400 self-play games": [Load(400, 2, 2, 1, 0.2)],
        "engine + self-play": [Load(1, 0, max(1, knee // 4), 2, gather_ms), Load(256, 2, 4, 1, 0.2)],
        "bursts": [Load(4, 1, max(1, knee // 2), 2, gather_ms, on_ms=100.0, off_ms=100.0)],
        "odd sizes": [Load(6, 0, knee // 2 + 1, 1, gather_ms)],
        "6 s of self-play": [queued(model, 2, 6.0)],
        "play + 6 s of self-play": [game, queued(model, 2, 6.0)],
        "play + 6 s of analysis": [game, queued(model, 1, 6.0)],
        "too much play + self-play": [queued(model, 0, 1.0), queued(model, 2, 6.0)],
        "at random, 70 %": [at_random(model, 0.7)],
    }


def queued(model: LatencyModel, rank: int, seconds: float) -> Load:
    """Clients of a class that keep requests for so many seconds of the device's time queued."""
    clients = 8
    positions = max(8, model.knee // 4)
    best = model.throughput(model.knee)
    return Load(clients, rank, positions, max(1, round(seconds * best / clients / positions)))


def at_random(model: LatencyModel, share: float) -> Load:
    """Requests of 8 that come at random and ask for that share of what the device can do."""
    return Load(1, 0, 8, per_second=share * model.throughput(model.ceiling) / 8)


@dataclass(slots=True)
class Outcome:
    """The result of a simulated run. latencies_ms: of every request answered, by class. class_rates:
    positions per second of each class."""

    positions_per_second: float
    mean_batch: float
    latencies_ms: dict[int, list[float]]
    class_rates: list[float]

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
    in_flight: int = 1,
) -> Outcome:
    """Run one policy under one load on a device with that latency, which takes so many batches at a time and
    computes them one after the other. Deterministic for a seed.

    The first tenth of the time does not count.
    """
    return _Simulation(model, policy, loads, duration_ms, seed, in_flight).run()


@dataclass(slots=True)
class _Batch:
    """A batch on the simulated device. expected_ms: its end, as far as the policy knows."""

    segments: list[Segment]
    positions: int
    expected_ms: float


class _Simulation:
    """The state of a run: the clients, the queue, the device, and the events to come."""

    def __init__(
        self,
        model: LatencyModel,
        policy: Policy,
        loads: Sequence[Load],
        duration_ms: float,
        seed: int,
        in_flight: int,
    ) -> None:
        self.model = model
        self.policy = policy
        self.duration_ms = duration_ms
        self.warm_ms = duration_ms / 10
        self.in_flight = in_flight
        self.random = np.random.default_rng(seed)
        self.scheduler = Scheduler()
        self.kinds = [load for load in loads for _ in range(load.count)]
        # Of their own, so that open clients send the same whatever the others do.
        self.arrivals = [np.random.default_rng((seed, client)) for client in range(len(self.kinds))]
        self.batches = {load.positions: _positions(load.positions) for load in loads}
        self.events: list[tuple[float, int, str, int]] = []
        self.serial = 0
        self.running: deque[_Batch] = deque()
        self.free_ms = 0.0
        self.done = [0, 0, 0]
        self.launched = 0
        self.latencies: dict[int, list[float]] = {load.rank: [] for load in loads}

    def run(self) -> Outcome:
        for client, load in enumerate(self.kinds):
            for _ in range(1 if load.per_second else load.in_flight):
                self.at(self.pause(client), "send", client)
        while self.events:
            now, _, what, client = heapq.heappop(self.events)
            if now > self.duration_ms:
                break
            if what == "send":
                self.send(client, now)
            elif what == "done":
                self.finish(now)
            self.look(now)
        seconds = (self.duration_ms - self.warm_ms) / 1000
        rates = [count / seconds for count in self.done]
        return Outcome(sum(rates), sum(self.done) / max(1, self.launched), self.latencies, rates)

    def at(self, time_ms: float, what: str, client: int = -1) -> None:
        self.serial += 1
        heapq.heappush(self.events, (time_ms, self.serial, what, client))

    def pause(self, client: int) -> float:
        """Milliseconds until a client's next request."""
        load = self.kinds[client]
        if load.per_second:
            return float(self.arrivals[client].exponential(1000.0 / load.per_second))
        return load.think_ms / 2 + float(self.random.exponential(load.think_ms / 2))

    def send(self, client: int, now: float) -> None:
        load = self.kinds[client]
        period = load.on_ms + load.off_ms
        if period and now % period > load.on_ms:
            self.at((now // period + 1) * period + self.pause(client), "send", client)
            return
        self.serial += 1
        self.scheduler.add(Request(client, self.serial, self.batches[load.positions], load.rank, now))
        self.policy.arrived(client, load.positions, load.rank, now)
        if load.per_second:
            self.at(now + self.pause(client), "send", client)

    def look(self, now: float) -> None:
        """Launch what the policy wants launched."""
        while self.scheduler.positions and len(self.running) < self.in_flight:
            busy_until = self.running[-1].expected_ms if self.running else None
            decision = self.policy.decide(self.scheduler.pending(self.model.max_batch), now, busy_until)
            if isinstance(decision, Wait):
                self.at(max(decision.until_ms, now + 1e-3), "look")
                return
            segments = self.scheduler.take(decision.positions, now)
            positions = sum(segment.stop - segment.start for segment in segments)
            batch_ms = self.model.milliseconds(positions)
            self.scheduler.ran(batch_ms, segments)
            begin_ms = max(now, busy_until or now)
            self.running.append(_Batch(segments, positions, begin_ms + batch_ms))
            noise = float(np.exp(self.random.normal(0.0, NOISE)))
            self.free_ms = max(now, self.free_ms) + batch_ms * noise
            self.at(self.free_ms, "done")

    def finish(self, now: float) -> None:
        batch = self.running.popleft()
        counts = now > self.warm_ms
        self.launched += counts
        for segment in batch.segments:
            request = segment.request
            if counts:
                self.done[request.rank] += segment.stop - segment.start
            if segment.stop < request.count:
                continue
            client = int(str(request.client))
            load = self.kinds[client]
            self.policy.replied(client, now)
            if not load.per_second:
                self.at(now + self.pause(client), "send", client)
            if counts:
                self.latencies[request.rank].append(now - request.arrived_ms)


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

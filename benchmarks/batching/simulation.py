# SPDX-License-Identifier: GPL-3.0-or-later
"""A discrete-event simulation of devices and many clients, for comparing batch policies.

Closed-loop clients model engines and self-play: each keeps some requests in flight and sends the next one
some time after an answer. Open clients send at random times, independently of answers. Queues, fairness and
the service's policy are the real code; only devices and clients are simulated. compare_policies.py prints the
comparison; docs/explanation/batching.md discusses it.
"""

from __future__ import annotations

import heapq
import json
import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.batching.policies import Policy
from evaluator.scheduling.batching import BatchPolicy, Wait
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.placement import Station, free_at_ms, place
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

MORE = 1.1
"""Growth factor of the queue at which a waiting busy device checks it early."""

NOISE = 0.03
"""Relative standard deviation of a batch's time."""


@dataclass(frozen=True, slots=True)
class Load:
    """Clients of one kind: `count` of class `rank`, each keeping `in_flight` requests of `positions` in
    flight, and sending the next `think_ms` after an answer (half fixed, half exponentially distributed).
    on_ms, off_ms: bursts; silent for off_ms after every on_ms. per_second: if not 0, each client sends this
    many requests per second at random times (Poisson process) and waits for no answers. target_ms: latency
    that the requests ask for; None for that of their class."""

    count: int
    rank: int
    positions: int
    in_flight: int = 1
    think_ms: float = 0.0
    on_ms: float = 0.0
    off_ms: float = 0.0
    per_second: float = 0.0
    target_ms: float | None = None


def patterns(model: LatencyModel) -> dict[str, list[Load]]:
    """Return load patterns for a device's size: engines gather batches of the knee."""
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
    """Return clients of a class that keep this many seconds of device time queued."""
    clients = 8
    positions = max(8, model.knee // 4)
    best = model.throughput(model.knee)
    return Load(clients, rank, positions, max(1, round(seconds * best / clients / positions)))


def at_random(model: LatencyModel, share: float) -> Load:
    """Return random requests of 8 positions that need this share of the device."""
    return Load(1, 0, 8, per_second=share * model.throughput(model.ceiling) / 8)


@dataclass(slots=True)
class Outcome:
    """The result of a simulation. latencies_ms: of every answered request, by class. class_rates: positions
    per second of each class. load_latencies_ms: the same, by the load's place in the list."""

    positions_per_second: float
    mean_batch: float
    latencies_ms: dict[int, list[float]]
    class_rates: list[float]
    load_latencies_ms: list[list[float]]

    def mean_ms(self, rank: int) -> float:
        """Return the mean latency of a class; NaN without answers."""
        return statistics.fmean(self.latencies_ms[rank]) if self.latencies_ms[rank] else math.nan

    def p99_ms(self, rank: int) -> float:
        """Return the 99th percentile of a class's latency; NaN without answers."""
        return float(np.percentile(self.latencies_ms[rank], 99)) if self.latencies_ms[rank] else math.nan


def simulate(
    model: LatencyModel,
    policy: Policy,
    loads: Sequence[Load],
    *,
    duration_ms: float = 4000.0,
    seed: int = 1,
    in_flight: int = 1,
    beside: Sequence[tuple[LatencyModel, Policy]] = (),
    takes_ms: Callable[[int], float] | None = None,
    warm_ms: float | None = None,
) -> Outcome:
    """Simulate one policy under one load on a device. Deterministic for a seed.

    in_flight: batches in flight on the device, which computes them one after the other. beside: other devices
    with their policies. takes_ms: true milliseconds of the first device's batches, if they differ from its
    model, which then learns from each batch. warm_ms: initial milliseconds that do not count (default: a
    tenth of the time).
    """
    devices = [_Device(*each) for each in ((model, policy), *beside)]
    devices[0].takes_ms = takes_ms
    warm_ms = duration_ms / 10 if warm_ms is None else warm_ms
    return _Simulation(devices, loads, duration_ms, warm_ms, seed, in_flight).run()


@dataclass(slots=True)
class _Batch:
    """A batch on a simulated device. expected_ms: its end as the policy expects it. own_ms: its device
    time."""

    segments: list[Segment]
    positions: int
    expected_ms: float
    own_ms: float


@dataclass(slots=True)
class _Device:
    """A simulated device. free_ms: end of its last batch. looks_ms: next check of the queue by itself. seen:
    queued positions at its last check. takes_ms: as in `simulate`."""

    model: LatencyModel
    policy: Policy
    running: deque[_Batch] = field(default_factory=deque)
    free_ms: float = 0.0
    looks_ms: float = -1.0
    seen: int = 0
    takes_ms: Callable[[int], float] | None = None

    @property
    def largest_batch(self) -> int:
        return max(self.model.max_batch, self.model.trial or 0)

    def station(self, now: float) -> Station:
        free_ms = free_at_ms(self.running[-1].expected_ms, now) if self.running else now
        return Station(self.model, free_ms)


class _Simulation:
    """The state of a simulation: clients, queue, devices, and future events."""

    def __init__(
        self,
        devices: Sequence[_Device],
        loads: Sequence[Load],
        duration_ms: float,
        warm_ms: float,
        seed: int,
        in_flight: int,
    ) -> None:
        self.devices = devices
        self.duration_ms = duration_ms
        self.warm_ms = warm_ms
        self.in_flight = in_flight
        self.random = np.random.default_rng(seed)
        self.scheduler = Scheduler()
        self.kinds = [load for load in loads for _ in range(load.count)]
        self.places = [place for place, load in enumerate(loads) for _ in range(load.count)]
        self.load_latencies: list[list[float]] = [[] for _ in loads]
        self.turns = np.random.default_rng((seed, len(self.kinds)))
        # A generator per client, so that an open client's requests do not depend on the others.
        self.arrivals = [np.random.default_rng((seed, client)) for client in range(len(self.kinds))]
        self.batches = {load.positions: _positions(load.positions) for load in loads}
        self.events: list[tuple[float, int, str, int]] = []
        self.serial = 0
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
                self.finish(self.devices[client], now)
            self.look(now)
        seconds = (self.duration_ms - self.warm_ms) / 1000
        rates = [count / seconds for count in self.done]
        return Outcome(
            sum(rates), sum(self.done) / max(1, self.launched), self.latencies, rates, self.load_latencies
        )

    def at(self, time_ms: float, what: str, which: int = -1) -> None:
        """Schedule an event: a client sends, a device ends a batch, or all devices check the queue."""
        self.serial += 1
        heapq.heappush(self.events, (time_ms, self.serial, what, which))

    def pause(self, client: int) -> float:
        """Return the milliseconds until a client's next request."""
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
        batch = self.batches[load.positions]
        self.scheduler.add(Request(client, self.serial, batch, load.rank, now, target_ms=load.target_ms))
        for device in self.devices:
            device.policy.arrived(client, load.positions, load.rank, now)
            if load.target_ms is not None and isinstance(device.policy, BatchPolicy):
                device.policy.hurry(load.target_ms, now)
        if load.per_second:
            self.at(now + self.pause(client), "send", client)

    def look(self, now: float) -> None:
        """Launch the batches that the policies want."""
        launched = True
        while launched:
            # The order of devices is random, because threads wake up in any order.
            order = self.turns.permutation(len(self.devices)) if len(self.devices) > 1 else (0,)
            launched = sum([self.launch(int(index), now) for index in order]) > 0

    def launch(self, index: int, now: float) -> bool:
        """Launch the batch that a device's policy wants, if any. Returns True if it did."""
        device = self.devices[index]
        if not self.scheduler.positions or len(device.running) >= self.in_flight:
            return False
        queued = self.scheduler.positions
        busy_until = device.running[-1].expected_ms if device.running else None
        if busy_until is not None and now < device.looks_ms and queued < MORE * device.seen:
            return False  # as in the service, it is not woken for each request
        others = [each.station(now) for each in self.devices if each is not device]
        most = device.largest_batch
        own = device.station(now)
        decision, skip = place(self.scheduler, device.policy, most, own, others, now, busy_until)
        if isinstance(decision, Wait):
            if not now < device.looks_ms <= decision.until_ms:
                device.looks_ms = max(decision.until_ms, now + 1e-3)
                self.at(device.looks_ms, "look")
            device.seen = queued
            return False
        segments = self.scheduler.take(decision.positions, now, skip)
        positions = sum(segment.stop - segment.start for segment in segments)
        batch_ms = device.model.milliseconds(positions)
        self.scheduler.ran(batch_ms, segments)
        own_ms = batch_ms if device.takes_ms is None else device.takes_ms(positions)
        own_ms *= float(np.exp(self.random.normal(0.0, NOISE)))
        device.running.append(_Batch(segments, positions, max(now, busy_until or now) + batch_ms, own_ms))
        device.free_ms = max(now, device.free_ms) + own_ms
        self.at(device.free_ms, "done", index)
        return True

    def finish(self, device: _Device, now: float) -> None:
        batch = device.running.popleft()
        if device.takes_ms is not None:
            device.model.observe(batch.positions, batch.own_ms)
        counts = now > self.warm_ms
        self.launched += counts
        for segment in batch.segments:
            request = segment.request
            if counts:
                self.done[request.rank] += segment.stop - segment.start
            request.done += segment.stop - segment.start
            if request.done < request.count:
                continue
            client = int(str(request.client))
            load = self.kinds[client]
            for each in self.devices:
                each.policy.replied(client, now)
            if not load.per_second:
                self.at(now + self.pause(client), "send", client)
            if counts:
                self.latencies[request.rank].append(now - request.arrived_ms)
                self.load_latencies[self.places[client]].append(now - request.arrived_ms)


def curve_model(name_or_path: str, *, padded: bool = False) -> LatencyModel:
    """Return the model of a curve in CURVES, or of a file written by `bench --json`.

    padded: the device runs only the measured sizes, like one with captured graphs. Raises ValueError.
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
    # The scheduler only counts the positions.
    return PositionBatch(
        positions=np.broadcast_to(np.void(b"\0"), (count,)),
        move_offsets=np.zeros(0, np.uint32),
        moves=np.zeros(0, np.uint16),
    )

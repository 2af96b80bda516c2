# SPDX-License-Identifier: GPL-3.0-or-later
"""The next batch of a device that several networks use."""

from __future__ import annotations

import itertools

import pytest

from evaluator.devices.dispatcher import next_job
from evaluator.devices.runners import Device, Runner, new_runner
from evaluator.devices.served_network import ServedNetwork
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Order, Scheduler
from protocol.messages import NetworkInfo
from tests.evaluator.service.harness import EchoBackend, numbered_batch

FLOOD, COUNT = 18, 100
"""Requests that one client keeps queued, and their positions: more than a full batch."""

SETTLED = 200
"""Milliseconds after which the other network gets its request."""


def networks(devices: list[Device], order: Order) -> list[ServedNetwork]:
    """Two networks on devices of 4 ms and 0.4 ms a position, with up to two batches in flight."""
    made = []
    for name in "ab":
        runners = []
        for device in devices:
            backend, model = EchoBackend(), LatencyModel({1: 4.4, 1024: 4 + 0.4 * 1024}, 1024)
            backend.max_in_flight = 2
            runners.append(new_runner(device, backend, model, LatencyTargets(), lambda: None))
        made.append(ServedNetwork(NetworkInfo(name, name, 1), runners, scheduler=Scheduler(order)))
    return made


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("rank", [0, 2])
def test_a_network_with_few_positions_is_served_beside_a_flood_of_another(count: int, rank: int) -> None:
    """The former network of a reload is such a one: it is unloaded when its last requests are answered."""
    order, devices = Order(), [Device(f"{index}:echo") for index in range(count)]
    flooded, other = both = networks(devices, order)
    running: list[tuple[float, Runner]] = []
    batches = 0
    for tick in itertools.count():
        now = 1e6 + tick
        while running and running[0][0] <= now:
            end, runner = running.pop(0)
            runner.device.expected_end_ms.remove(end)
            runner.running -= 1
        while len(flooded.scheduler) < FLOOD:
            identity = tick * FLOOD + len(flooded.scheduler)
            flooded.scheduler.add(Request("flood", identity, numbered_batch(COUNT), rank, now))
        if tick == SETTLED:
            other.scheduler.add(Request("few", 1, numbered_batch(12), rank, now))
        for device in devices:
            while True:
                job, chosen, _ = next_job(both, device, now)
                if job is None or chosen is None:
                    break
                if job.network is other:
                    return
                batches += tick > SETTLED
                chosen.running += 1
                end = max([now, *device.expected_end_ms]) + chosen.model.milliseconds(job.positions)
                device.expected_end_ms.append(end)
                running.append((end, chosen))
        running.sort(key=lambda each: each[0])
        assert batches < 10 * count, "of the flood, and none of the other network"

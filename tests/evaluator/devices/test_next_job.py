# SPDX-License-Identifier: GPL-3.0-or-later
"""The next batch of a device that several networks use."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from evaluator.devices.runners import Device, Runner, new_runner
from evaluator.devices.running.dispatcher import next_job
from evaluator.devices.served_network import Job, ServedNetwork
from evaluator.scheduling.batching import LatencyTargets
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Order, Scheduler
from protocol.wire.messages import NetworkInfo
from tests.evaluator.service.echo import EchoBackend, numbered_batch

FLOOD, COUNT = 18, 100
"""Requests that one client keeps queued, and their positions: more than a full batch."""

SETTLED = 200
"""Milliseconds after which the other network gets its request."""


def networks(
    devices: list[Device], order: Order, most: int = 1024, *, side_by_side: bool = False
) -> list[ServedNetwork]:
    """Two networks on devices of 4 ms and 0.4 ms a position, with up to two batches in flight."""
    made = []
    for name in "ab":
        runners = []
        for device in devices:
            backend, model = EchoBackend(), LatencyModel({1: 4.4, most: 4 + 0.4 * most}, most)
            backend.max_in_flight, backend.side_by_side = 2, side_by_side
            runners.append(new_runner(device, backend, model, LatencyTargets(), lambda: None))
        made.append(ServedNetwork(NetworkInfo(name, name, 1), runners, scheduler=Scheduler(order)))
    return made


def serve(
    both: list[ServedNetwork], devices: list[Device], send: Callable[[int, float], None]
) -> Iterator[Job]:
    """Run batches by a clock, and yield each when it begins. send: called each millisecond."""
    running: list[tuple[float, Runner, Job]] = []
    for tick in itertools.count():
        now = 1e6 + tick
        while running and running[0][0] <= now:
            end, runner, done = running.pop(0)
            runner.device.expected_end_ms.remove(end)
            runner.running -= 1
            for request, start, stop in done.segments:
                request.done += stop - start
        send(tick, now)
        for device in devices:
            while len(device.expected_end_ms) < device.threads:
                job, chosen, _ = next_job(both, device, now)
                if job is None or chosen is None:
                    break
                chosen.running += 1
                end = max([now, *device.expected_end_ms]) + chosen.model.milliseconds(job.positions)
                device.expected_end_ms.append(end)
                running.append((end, chosen, job))
                yield job
        running.sort(key=lambda each: each[0])


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("rank", [0, 2])
def test_network_with_few_positions_is_served_during_a_flood(count: int, rank: int) -> None:
    """The former network of a reload is such a one: it is unloaded when its last requests are answered."""
    order, devices = Order(), [Device(f"{index}:echo") for index in range(count)]
    flooded, other = both = networks(devices, order)

    def send(tick: int, now: float) -> None:
        while len(flooded.scheduler) < FLOOD:
            identity = tick * FLOOD + len(flooded.scheduler)
            flooded.scheduler.add(Request("flood", identity, numbered_batch(COUNT), rank, now))
        if tick == SETTLED:
            other.scheduler.add(Request("few", 1, numbered_batch(12), rank, now))

    assert other in (job.network for job in itertools.islice(serve(both, devices, send), 15 * count))


@pytest.mark.parametrize("payer", ["program", None])
def test_players_wait_no_longer_during_a_reload(payer: str | None) -> None:
    """After 3 s all go on with the new network; 1,800 positions of the former one are left."""
    devices = [Device("0:echo")]
    both = networks(devices, Order(), most=48, side_by_side=True)
    asked: dict[str, Request] = {}
    waits: list[tuple[int, float]] = []
    identities = itertools.count()

    def send(tick: int, now: float) -> None:
        queues = both[tick >= 3000].scheduler
        while sum(len(each.scheduler) for each in both) < FLOOD:
            queues.add(Request("flood", next(identities), numbered_batch(COUNT), 0, now, payer=payer))
        for player in ("a", "b", "c", "d"):
            last = asked.get(player)
            if last is None or last.done:
                waits.append((tick, 0.0 if last is None else now - last.arrived_ms))
                asked[player] = Request(player, next(identities), numbered_batch(1), 0, now, payer=payer)
                queues.add(asked[player])

    for _ in serve(both, devices, send):
        if waits[-1][0] > 6000:
            break
    before, after = (max(ms for at, ms in waits if (at >= 3000) is late) for late in (False, True))
    assert after <= 1.3 * before and not len(both[0].scheduler)

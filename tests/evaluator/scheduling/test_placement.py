# SPDX-License-Identifier: GPL-3.0-or-later
"""Which device takes which part of a queue: cutting over idle devices, leaving work to who ends it first."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.batching.simulation import Load, Outcome, curve_model, queued, simulate
from evaluator.scheduling.batching import BatchPolicy, LaunchNow, Wait
from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.placement import Station, free_at_ms, place, share_out
from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Scheduler
from tests.evaluator.service.echo import numbered_batch

FAST = LatencyModel({1: 1.03, 1024: 1 + 0.03 * 1024}, 1024)
SLOW = LatencyModel({1: 22.0, 1024: 20 + 2 * 1024.0}, 1024)
SMOOTH = curve_model("h200-t82")


def queue(*requests: tuple[int, int]) -> Scheduler:
    """A queue of (class, positions) from a client each."""
    scheduler = Scheduler()
    for identity, (rank, count) in enumerate(requests, 1):
        scheduler.add(Request(identity, identity, numbered_batch(count), rank, 0.0))
    return scheduler


def launch(scheduler: Scheduler, own: Station, *others: Station) -> tuple[list[int], int]:
    """Let a device decide and take: the requests it took of, and how many positions; none if it waits."""
    decision, skip = place(scheduler, BatchPolicy(own.model), own.model.max_batch, own, others, 0.0)
    if isinstance(decision, Wait):
        return [], 0
    segments = scheduler.take(decision.positions, 0.0, skip)
    return [segment.request.id for segment in segments], decision.positions


def run(models: list[LatencyModel], *loads: Load) -> Outcome:
    devices = [(model, BatchPolicy(model)) for model in models]
    return simulate(*devices[0], loads, duration_ms=2500.0, in_flight=2, beside=devices[1:])


@given(
    st.sampled_from(["h200-t82", "h200-bt4", "cpu2-attention"]),
    st.booleans(),
    st.floats(min_value=0.0, max_value=2000.0, allow_subnormal=False),
)
def test_positions_within_a_time_end_in_it(curve: str, padded: bool, milliseconds: float) -> None:
    model = curve_model(curve, padded=padded)
    count = model.within(milliseconds)
    assert model.drain_ms(count) <= milliseconds + model.launch_ms + 1e-9
    assert model.drain_ms(count + 1) > 0.97 * milliseconds - model.launch_ms


def test_a_large_request_is_cut_over_idle_devices() -> None:
    scheduler = queue((0, 1000))
    idle = [Station(SMOOTH, 0.0) for _ in range(4)]
    sizes: list[int] = []
    for index in range(4):
        busy = [Station(SMOOTH, SMOOTH.milliseconds(size)) for size in sizes]
        _, size = launch(scheduler, idle[index], *busy, *idle[index + 1 :])
        sizes.append(size)
    assert sum(sizes) == 1000
    assert max(sizes) <= 300
    assert max(map(SMOOTH.milliseconds, sizes)) < SMOOTH.milliseconds(1000) / 2.5


def test_a_small_request_is_not_cut() -> None:
    idle = Station(SMOOTH, 0.0)
    assert launch(queue((0, 8)), idle, idle, idle, idle) == ([1], 8)


def test_a_slow_device_leaves_play_to_a_fast_one_that_is_free_soon() -> None:
    assert launch(queue((0, 64)), Station(SLOW, 0.0), Station(FAST, 25.0)) == ([], 0)
    assert launch(queue((0, 64)), Station(FAST, 25.0), Station(SLOW, 0.0)) == ([1], 64)


@pytest.mark.integration
def test_a_slow_device_takes_what_the_fast_one_will_not_have_come_to() -> None:
    scheduler = queue((0, 64), *((2, 512) for _ in range(200)))
    taken, size = launch(scheduler, Station(SLOW, 0.0), Station(FAST, 5.0))
    assert size > 0
    assert 1 not in taken
    ahead = 64 + 512 * (taken[0] - 2)
    assert FAST.drain_ms(ahead) >= 0.8 * SLOW.milliseconds(size)


def test_play_takes_the_device_free_first_when_much_waits() -> None:
    scheduler = queue((0, 1), *((2, 64) for _ in range(500)))
    taken, _ = launch(scheduler, Station(SMOOTH, 0.0), Station(SMOOTH, 10.0))
    assert taken[0] == 1


def test_a_device_that_is_overdue_is_not_left_work_for_ever() -> None:
    now = 1000.0
    assert free_at_ms(1010.0, now) == 1010.0
    hangs = Station(FAST, free_at_ms(now - 500.0, now))
    own = Station(SLOW, now)
    scheduler = queue((0, 64))
    decision, skip = place(scheduler, BatchPolicy(SLOW), 1024, own, [hangs], now)
    assert isinstance(decision, LaunchNow)
    assert skip == 0


def test_work_is_not_shared_where_that_gains_nothing() -> None:
    one, both = Station(FAST, 0.0), (Station(FAST, 0.0), Station(FAST, 0.0))
    assert share_out(both, 1) == (one.end_ms(1), [1, 0])
    assert share_out((Station(SLOW, 0.0), one), 512) == (one.end_ms(512), [0, 512])
    end_ms, parts = share_out(both, 512)
    assert one.end_ms(512) / 2 < end_ms < 0.6 * one.end_ms(512)
    assert parts == pytest.approx([256, 256], abs=10)


@pytest.mark.integration
@pytest.mark.parametrize("devices", [[FAST, SLOW], [SLOW, FAST]], ids=["fast first", "slow first"])
@pytest.mark.parametrize(
    "loads",
    [
        [Load(1, 0, 64, think_ms=5.0)],
        [Load(1, 0, 64, in_flight=8, think_ms=5.0)],
        [Load(1, 0, 64, think_ms=5.0), queued(FAST, 2, 2.0)],
        [Load(1, 0, 1, per_second=100.0), Load(64, 2, 4, think_ms=0.2)],
    ],
    ids=["one engine", "many requests", "beside self-play", "beside games"],
)
def test_a_slow_second_device_does_not_slow_play_down(devices: list[LatencyModel], loads: list[Load]) -> None:
    alone, both = run([FAST], *loads), run(devices, *loads)
    assert statistics.median(both.latencies_ms[0]) <= 1.1 * statistics.median(alone.latencies_ms[0])
    assert both.p99_ms(0) <= 1.3 * alone.p99_ms(0)
    assert both.positions_per_second >= 0.95 * alone.positions_per_second


@pytest.mark.parametrize(("devices", "times"), [(2, 1.9), (4, 3.7)])
def test_devices_add_up(devices: int, times: float) -> None:
    engine, games = Load(1, 0, 512 * devices, 2, 5.0), queued(SMOOTH, 2, 1.0)
    for load in (engine, games):
        one, many = run([SMOOTH], load), run([SMOOTH] * devices, load)
        assert many.positions_per_second >= times * one.positions_per_second

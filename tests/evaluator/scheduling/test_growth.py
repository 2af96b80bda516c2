# SPDX-License-Identifier: GPL-3.0-or-later
"""A curve that was cut short, or measured on a busy machine, grows while it is used; simulated."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.batching.simulation import CURVES, Load, Outcome, simulate
from evaluator.devices.opening.calibration import latency_model
from evaluator.scheduling.batching import BatchPolicy, LatencyTargets, LaunchNow, Pending
from evaluator.scheduling.growth import FLAT_STEPS, RETRY_TIMES, TRIES, Growth, is_flat
from evaluator.scheduling.latency import LatencyModel, steps_to
from evaluator.settings import DeviceSettings
from protocol.batch import EvaluationBatch, PositionBatch
from tests.evaluator.service.echo import EchoBackend

Curve = Callable[[int], float]
"""Milliseconds of a batch by its positions."""

MOST = 1024
BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

SECONDS = 60.0
"""After so long the largest batches have to run."""

DEEP = Load(16, 2, 256)
"""Requests of class self-play that are always queued."""

PLAYER = Load(1, 0, 1, per_second=25.0)


def line(base_ms: float, per_position_ms: float) -> Curve:
    return lambda size: base_ms + per_position_ms * size


def slowed(name: str, factor: float) -> Curve:
    sizes, ms = zip(*sorted(CURVES[name].items()), strict=True)
    return lambda size: float(np.interp(size, sizes, ms)) * factor


DEVICES: dict[str, Curve] = {
    **{
        f"{base} + {per} ms": line(base, per)
        for base, per in itertools.product((1.3, 5.0, 10.0, 20.0, 40.0, 100.0), (0.05, 0.2, 0.5))
    },
    **{
        f"{name} x {factor}": slowed(name, factor)
        for name, factor in itertools.product(("h200-bt4", "h200-t82", "h200-t80"), (1, 4, 10, 20))
    },
}


TARGET_MS = LatencyTargets().play

QUICK_ENOUGH = [name for name, curve in DEVICES.items() if curve(1) <= TARGET_MS / 3]
"""Devices that can keep the target of play at all, with a batch before it and one beside."""


class SimulatedDevice(EchoBackend):
    """Computes by a clock of its own. noise: what a run takes longer, as a factor."""

    def __init__(
        self, curve: Curve, buckets: tuple[int, ...] = (), noise: Callable[[], float] = lambda: 1.0
    ) -> None:
        super().__init__(MOST)
        self.curve, self.buckets, self.noise, self.now = curve, buckets, noise, 0.0

    def milliseconds(self, size: int) -> float:
        return self.curve(min(bucket for bucket in self.buckets or (size,) if bucket >= size))

    def answer_in(self, size: int) -> float:
        return self.milliseconds(size) * self.noise()

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        self.now += self.answer_in(len(batch)) / 1000
        return super().evaluate(batch)

    def started(self) -> LatencyModel:
        """The model after the measurement at start."""
        model, _ = latency_model(
            self, "", DeviceSettings(calibration_s=0.4, latency_cache=False), clock=lambda: self.now
        )
        return model


def run(device: SimulatedDevice, model: LatencyModel, *loads: Load, seconds: float = SECONDS) -> Outcome:
    """What comes of loads in the 20 s after so many."""
    return simulate(
        model,
        BatchPolicy(model),
        loads,
        duration_ms=1000 * (seconds + 20),
        warm_ms=1000 * seconds,
        in_flight=2,
        takes_ms=device.answer_in,
    )


@pytest.mark.parametrize("buckets", [(), BUCKETS], ids=["any size", "padded"])
@pytest.mark.parametrize("name", DEVICES)
def test_deep_selfplay_queue_reaches_the_largest_batchs_rate(name: str, buckets: tuple[int, ...]) -> None:
    device = SimulatedDevice(DEVICES[name], buckets)
    model = device.started()
    outcome = run(device, model, DEEP)
    best = max(1000 * size / device.curve(size) for size in BUCKETS)
    assert outcome.positions_per_second >= 0.95 * best
    assert model.known


@pytest.mark.integration
@pytest.mark.parametrize("name", QUICK_ENOUGH)
def test_play_keeps_its_target_while_larger_sizes_are_tried(name: str) -> None:
    device = SimulatedDevice(DEVICES[name])
    known = LatencyModel({size: device.curve(size) for size in steps_to(MOST)}, MOST)
    wanted = run(device, known, PLAYER, DEEP, seconds=0.0).p99_ms(0)
    outcome = run(device, device.started(), PLAYER, DEEP, seconds=0.0)
    assert outcome.p99_ms(0) <= max(TARGET_MS, 1.05 * wanted)


@pytest.mark.integration
def test_ten_starts_on_a_busy_machine_end_alike() -> None:
    rates = []
    for seed in range(10):
        random = np.random.default_rng(seed)
        device = SimulatedDevice(line(6.0, 0.05), noise=lambda random=random: 1 + random.exponential(1.0))  # type: ignore[misc]
        model = device.started()
        doubted = Growth(steps_to(MOST), model.shortest(), model.shortest())
        model = LatencyModel(model.shortest(), model.measured, growth=doubted)
        # What the noise has cost is no matter here: the rate of the batches that run now.
        device.noise = lambda: 1.0
        rates.append(run(device, model, DEEP).positions_per_second)
    assert min(rates) >= 0.95 * max(rates)
    assert min(rates) >= 0.95 * 1000 * MOST / line(6.0, 0.05)(MOST)


def tried(growth: Growth, size: int, ms: float, *, busy: bool = False) -> None:
    for _ in range(TRIES):
        growth.ran(size, ms, busy=busy)


def test_a_curve_grows_size_by_size_to_the_largest() -> None:
    growth = Growth((1, 2, 4, 8), {1: 10.0})
    for size in (2, 4, 8):
        assert growth.trial() == growth.idle_trial() == size
        assert not growth.known
        tried(growth, size, 10.0 + size)
    assert growth.trial() is None
    assert growth.idle_trial() is None
    assert (growth.measured, growth.known) == (8, True)


def test_one_run_that_was_too_short_or_too_long_does_not_count() -> None:
    growth = Growth((1, 2), {1: 10.0})
    for ms in (0.1, 11.0, 500.0):
        growth.ran(2, ms, busy=False)
    assert growth.points[2] == 11.0


def test_growth_ends_where_the_throughput_does() -> None:
    growth = Growth((1, 2, 4, 8, 16), {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0})
    assert is_flat(growth.points)
    assert growth.known


def test_size_is_tried_again_when_it_seemed_too_fast() -> None:
    growth = Growth((1, 2, 4, 8, 16, 32, 64), {1: 10.0})
    tried(growth, 2, 1.0)  # It takes 10 ms, as the others nearly do.
    for size in (4, 8, 16):
        tried(growth, size, 10.0 + size / 10)
    assert is_flat(growth.points)
    assert growth.next_step == 32
    for _ in range(3):
        size = growth.idle_trial() or 0
        tried(growth, size, 10.0 + size / 10)
    assert growth.points[2] == pytest.approx(10.2)
    assert not is_flat(growth.points)


def test_a_dip_measured_on_a_busy_machine_does_not_end_the_growth() -> None:
    growth = Growth((1, 2, 4, 8, 16), {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}, doubted=(1, 2, 4, 8))
    assert growth.next_step == 16
    assert not growth.known
    while (size := growth.idle_trial()) is not None:
        tried(growth, size, 1.0 + size / 16)
    assert growth.measured == 16
    assert growth.points[8] == 1.5
    assert growth.known


def test_sizes_are_doubted_for_as_long_as_the_machine_is_busy() -> None:
    growth = Growth((1, 2), {1: 1.0, 2: 1.5}, doubted=(2,))
    tried(growth, 2, 1.6, busy=True)
    assert growth.doubted == {2}
    tried(growth, 2, 1.2)
    assert not growth.doubted
    assert growth.points[2] == 1.2


def test_retry_on_a_busy_machine_keeps_the_shorter_time() -> None:
    growth = Growth([1, 2], {1: 1.0, 2: 1.5}, [1, 2])
    tried(growth, 2, 4.0, busy=True)
    assert growth.points[2] == 1.5
    tried(growth, 2, 1.2, busy=True)
    assert growth.points[2] == 1.2
    tried(growth, 2, 1.6)
    assert growth.points[2] == 1.6


def test_retries_take_a_small_share_and_become_rare() -> None:
    growth = Growth((1, 2), {1: 1.0, 2: 1.5}, doubted=(2,))
    spent, retried = 0.0, []
    for _ in range(10_000):
        size = growth.trial() or 1
        growth.ran(size, 1.0, busy=True)
        spent += 1.0
        if size == 2:
            retried.append(spent)
    assert 0 < len(retried) / spent <= 1 / RETRY_TIMES
    assert len(retried) < 15 * TRIES


def test_a_size_that_fails_is_not_tried_again() -> None:
    points = {size: 10.0 + size for size in (1, 2, 4)}
    model = LatencyModel(points, 4, growth=Growth(steps_to(64), points))
    assert model.max_batch == 8
    model.refuse(8)
    assert model.trial is None
    assert (model.max_batch, model.known) == (4, True)
    model.refuse(2)  # It was measured: another failure.
    assert model.max_batch == 4


def growing(points: dict[int, float]) -> BatchPolicy:
    return BatchPolicy(LatencyModel(points, max(points), growth=Growth(steps_to(MOST), points)))


def test_a_queue_that_is_deep_enough_tries_the_next_size() -> None:
    policy = growing({1: 20.2, 8: 21.6})
    assert policy.decide([Pending(16, 2, 0.0)] * 2, 0.0) == LaunchNow(16)
    assert policy.decide([Pending(15, 2, 0.0)], 0.0) == LaunchNow(15)


def test_no_size_is_tried_that_would_hold_play_up() -> None:
    policy = growing({1: 20.2, 8: 21.6, 24: 24.8})
    deep = [Pending(64, 2, 0.0)]
    assert policy.decide(deep, 0.0) == LaunchNow(32)
    policy.arrived("engine", 1, 0, 0.0)
    decision = policy.decide(deep, 1.0)
    assert isinstance(decision, LaunchNow)
    assert decision.positions <= 24


def test_no_size_is_tried_that_would_make_play_late() -> None:
    policy = growing({1: 20.2, 8: 21.6})
    queued = [Pending(4, 0, 0.0), Pending(64, 2, 0.0)]
    assert policy.decide(queued, 40.0) != LaunchNow(16)


def test_a_batch_runs_when_a_client_takes_too_long_to_gather_more() -> None:
    model = LatencyModel({size: 40 + 0.2 * size for size in steps_to(MOST)}, MOST)
    assert model.knee < model.full <= model.ceiling == MOST
    assert model.milliseconds(model.knee) <= 100.0
    assert BatchPolicy(model, side_by_side=True).largest_batch == MOST


def test_flat_means_three_sizes_without_growth() -> None:
    points = {1: 1.0, **{2**step: 2.0**step for step in range(1, FLAT_STEPS)}}
    assert not is_flat(points)
    assert is_flat(points | {2**FLAT_STEPS: 2.0**FLAT_STEPS})

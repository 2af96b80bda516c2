# SPDX-License-Identifier: GPL-3.0-or-later
"""The latency model: interpolation, knee, drain time, correction by what runs."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.scheduling.latency import LAUNCH_MS, LatencyModel
from tests.rounds import rounds

LINES = {1: 1.0, 10: 10.0, 20: 15.0}
STEPS = {1: 1.0, 32: 2.0, 64: 8.0}
CURVE = {1: 1.463, 8: 1.581, 32: 2.317, 64: 3.31, 128: 5.569, 256: 9.501, 512: 17.53, 1024: 33.66}


@pytest.mark.parametrize(
    ("points", "padded", "size", "ms"),
    [
        (LINES, False, 10, 10.0),
        (LINES, False, 15, 12.5),
        (LINES, False, 40, 30.0),  # no throughput that was not measured
        ({1: 1.0, 10: 5.0, 20: 15.0}, False, 40, 35.0),  # the last segment is steep
        ({4: 2.0}, False, 16, 8.0),
        (STEPS, True, 2, 2.0),
        (STEPS, True, 32, 2.0),
        (STEPS, True, 33, 8.0),
    ],
)
def test_times_between_and_beyond_what_was_measured(
    points: dict[int, float], padded: bool, size: int, ms: float
) -> None:
    model = LatencyModel(points, 64, points if padded else ())
    assert model.milliseconds(size) == pytest.approx(ms)


@pytest.mark.parametrize(
    ("points", "queued", "batches", "ms"),
    [
        (STEPS, 32, 1, 2.0),
        (STEPS, 33, 2, 3.0),
        ({1: 1.0, 32: 2.0}, 320, 11, 20.0),
        ({1: 1.0, 64: 100.0}, 50, 50, 50.0),
    ],
)
def test_a_queue_is_cut_if_faster(points: dict[int, float], queued: int, batches: int, ms: float) -> None:
    model = LatencyModel(points, max(points), points)
    assert model.drain_ms(queued) == pytest.approx(ms + (batches - 1) * LAUNCH_MS)


def test_the_knee_is_no_batch_that_takes_too_long() -> None:
    assert LatencyModel(LINES, 40).knee == 20
    assert LatencyModel({1: 5.0, 16: 60.0, 32: 99.0, 64: 180.0}, 64).knee == 32
    assert LatencyModel({1: 400.0, 2: 700.0, 4: 1200.0}, 64).knee == 1


def test_the_knee_is_the_smallest_size_near_the_best_throughput() -> None:
    model = LatencyModel(CURVE, 1024)
    assert model.knee == 512
    assert model.throughput(512) >= 0.95 * model.throughput(1024)
    assert model.throughput(256) < 0.95 * model.throughput(1024)


def test_the_ceiling_is_the_largest_size_near_the_best_throughput() -> None:
    model = LatencyModel({8: 4.6, 16: 9.0, 32: 17.5, 48: 26.8, 64: 38.0}, 128, launch_ms=0.5)
    assert model.ceiling == 48
    assert LatencyModel(CURVE, 1024).ceiling == 1024


def test_it_learns_that_a_device_became_slower() -> None:
    model = LatencyModel(CURVE, 1024)
    for _ in range(640):
        model.observe(256, 1.5 * CURVE[256])
    assert model.milliseconds(256) == pytest.approx(1.5 * CURVE[256], rel=0.02)
    assert model.milliseconds(8) == pytest.approx(CURVE[8])


def test_the_knee_does_not_follow_other_work_on_the_machine() -> None:
    model = LatencyModel({8: 8.0, 16: 14.0, 32: 24.0, 64: 47.0}, 64)
    assert model.knee == 32
    for _ in range(640):  # Only the size that runs is seen to be slow.
        model.observe(32, 1.5 * 24.0)
    assert model.milliseconds(32) == pytest.approx(36.0, rel=0.02)
    assert model.knee == 32


def test_the_knee_follows_a_measurement_that_was_disturbed() -> None:
    model = LatencyModel({8: 8.0, 16: 14.0, 32: 40.0}, 32)
    assert model.knee == 16
    for _ in range(640):
        model.observe(32, 24.0)
    assert model.knee == 32


def test_it_learns_between_measured_sizes_too() -> None:
    model = LatencyModel({1: 1.0, 64: 2.0, 128: 4.0}, 128)
    for _ in range(1280):
        model.observe(96, 4.5)
    assert model.milliseconds(96) == pytest.approx(4.5, rel=0.02)


def test_one_outlier_hardly_counts() -> None:
    model = LatencyModel({1: 1.0, 64: 2.0}, 64)
    model.observe(64, 10_000.0)
    for _ in range(63):
        model.observe(64, 2.0)
    assert model.milliseconds(64) == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("points", [{}, {0: 1.0}, {1: 0.0}, {1: math.inf}, {1: math.nan}, {-1: 1.0}])
def test_nonsense_is_no_curve(points: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="positive sizes and finite positive milliseconds"):
        LatencyModel(points, 8)


curves = st.dictionaries(st.integers(1, 256), st.floats(0.01, 1000.0), min_size=1, max_size=12)


@settings(max_examples=rounds(150))
@given(curves, st.integers(1, 256), st.integers(1, 600), st.booleans())
def test_the_model_is_sound_after_any_measurement(
    points: dict[int, float], max_batch: int, queued: int, padded: bool
) -> None:
    model = LatencyModel(points, max_batch, points if padded else ())
    times = [model.milliseconds(size) for size in range(1, max_batch + 1)]
    assert all(time > 0 for time in times)
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(times))
    assert 1 <= model.knee <= model.ceiling <= max_batch
    if queued <= max_batch:
        assert model.drain_ms(queued) <= model.milliseconds(queued) + 1e-9

# SPDX-License-Identifier: GPL-3.0-or-later
"""How many positions a search asks for: by the tree, by the device's curve, by the time that is left."""

import pytest

from engine.options import Options
from engine.search.limits import Limits
from engine.search.loop.batching import MAX_FILLED, BatchSizes, Speed, filled_step, positions_per_step

FAST = Speed(1056, 4096, [(1, 0.15), (8, 0.20), (32, 0.22), (64, 0.24), (128, 0.27), (1056, 1.6)])
"""A small network on a GPU with many processors."""

LARGE = Speed(264, 4096, [(1, 0.6), (8, 1.0), (32, 1.2), (64, 2.0), (264, 5.4)])
"""A large network there."""

CPU = Speed(8, 1024, [(1, 1.3), (8, 9.0), (16, 18.0), (32, 36.0)])

DEFAULTS = Options()

TIMED = Limits(movetime_ms=1000)


def measured_once(best: int, milliseconds: float) -> Speed:
    return Speed(best, 4096, [(best, milliseconds)])


def test_batches_fit_the_time_left() -> None:
    sizes = BatchSizes(64, [(1, 2.0), (8, 5.0), (32, 12.0), (64, 20.0), (256, 70.0)]).rule
    assert [sizes.fitting(ms) for ms in (0.5, 2.0, 11.9, 12.0, 1000.0)] == [1, 1, 8, 32, 64]
    assert BatchSizes(256).rule.fitting(0.1) == 256


def test_large_trees_take_larger_batches_where_these_are_quick() -> None:
    curve = [(1, 2.0), (8, 5.0), (16, 9.0), (32, 17.0), (64, 120.0)]
    sizes = BatchSizes.alone(Speed(16, 1024, curve), DEFAULTS, TIMED).rule
    assert [sizes.in_tree(visits) for visits in (1, 1023, 1024, 100_000)] == [16, 16, 32, 32]
    early = BatchSizes(33, curve, largest=99, large_tree=32).rule
    assert [early.in_tree(visits) for visits in (1, 1055, 1056, 10_000)] == [33, 33, 99, 99]
    slow = BatchSizes.alone(Speed(32, 1024, curve), DEFAULTS, TIMED).rule
    assert slow.in_tree(100_000) == 32  # 64 take too long
    small = BatchSizes.alone(Speed(64, 48, curve), DEFAULTS, TIMED).rule
    assert small.in_tree(100_000) == 48  # no more than the evaluator takes


def test_a_flat_curve_is_filled_and_a_proportional_one_is_not() -> None:
    assert FAST.flat_batch == 64
    assert LARGE.flat_batch == 32
    quick = [(8, 0.227), (32, 0.254), (64, 0.359), (128, 0.416)]  # in steps: a call is more than its time
    assert Speed(1056, 4096, quick).flat_batch == 64
    assert CPU.flat_batch == 0
    assert Speed(1, 1024, [(1, 1.0)]).flat_batch == 0
    assert Speed(256, 1024).flat_batch == 0
    assert BatchSizes.alone(FAST, DEFAULTS, TIMED).filled == 64
    assert BatchSizes.alone(CPU, DEFAULTS, TIMED).filled == 0
    assert BatchSizes.alone(FAST, Options(minibatch_size=16), TIMED).filled == 0


def test_flat_device_keeps_few_positions_in_flight() -> None:
    sizes = BatchSizes.alone(FAST, DEFAULTS, TIMED).rule
    wanted = {0: 2, 63: 2, 96: 3, 1023: 31, 1024: 16, 10_000: 50, 40_000: 100, 102_400: 160, 10**8: 2112}
    assert {visits: sizes.wanted(visits, 0) for visits in wanted} == wanted
    for visits in (0, 1600, 10_000):
        assert sizes.wanted(visits, 90) == 0  # a second batch would be a crumb, or too much
    assert sizes.wanted(10_000, 50) == 50


@pytest.mark.parametrize("limits", [Limits(nodes=400), Limits(nodes=400, depth=5)])
def test_fewer_visits_are_in_flight_when_only_visits_are_limited(limits: Limits) -> None:
    sizes = BatchSizes.alone(FAST, DEFAULTS, limits).rule
    assert [sizes.wanted(visits, 0) for visits in (0, 128, 400, 1024, 6400)] == [2, 2, 6, 16, 20]
    assert sizes.wanted(6400, 20) == 20


def test_positions_in_flight_follow_the_root_of_visits() -> None:
    sizes = BatchSizes.alone(FAST, Options(in_flight_factor=0.5, second_batch=64), TIMED).rule
    assert [sizes.wanted(visits, 0) for visits in (0, 128, 256, 400, 1600, 10_000)] == [2, 4, 8, 10, 20, 50]
    assert sizes.wanted(10_000, 20) == 0  # a second batch would be a crumb
    cut = BatchSizes.alone(FAST, Options(in_flight_factor=0.5, second_batch=16), TIMED).rule
    assert [cut.wanted(10_000, in_flight) for in_flight in (0, 25, 34, 35)] == [25, 25, 16, 0]


def test_a_second_batch_has_a_part_of_what_the_tree_bears() -> None:
    sizes = BatchSizes.alone(FAST, Options(second_batch=64, in_flight_factor=0), TIMED).rule
    assert [sizes.wanted(visits, 0) for visits in (400, 4095, 4096, 8000)] == [12, 127, 64, 125]
    assert [sizes.wanted(8000, in_flight) for in_flight in (125, 186, 187, 250)] == [125, 64, 0, 0]
    assert sizes.wanted(60_000, 900) == 975
    assert sizes.wanted(10**6, 3000) == 2112  # what a large tree has at most
    alone = BatchSizes.alone(FAST, Options(second_batch=64, in_flight_factor=0, batches_in_flight=1), TIMED)
    assert alone.rule.wanted(8000, 0) == 250  # there will be no second


def test_large_batches_are_cut_for_the_batches_in_flight() -> None:
    sizes = BatchSizes.alone(FAST, Options(batches_in_flight=3), TIMED).rule
    assert [sizes.wanted(visits, 0) for visits in (1023, 1024, 2303, 2304, 10_000)] == [31, 16, 23, 16, 33]
    assert [sizes.wanted(10_000, in_flight) for in_flight in (33, 66, 84, 85)] == [33, 33, 16, 0]


def test_a_batch_is_cut_where_that_hides_what_a_call_takes() -> None:
    assert Speed(1056, 4096, [(1, 0.15), (2048, 2.8)]).second_batch == 16  # 1.3 us a position
    assert Speed(1056, 4096, [(1, 0.7), (4096, 0.7)]).second_batch == 64  # smaller ones would take as long
    curve = [(8, 0.5), (64, 0.5), (128, 0.7), (512, 2.8)]
    assert Speed(512, 4096, curve).second_batch == 16
    assert [Speed(512, 4096, curve).milliseconds(size) for size in (1, 96, 128, 1024)] == [0.5, 0.6, 0.7, 5.6]
    # The search itself takes time for each position. Without it, these two measurements of one H200 gave 32
    # and 128, and a quarter fewer nodes.
    for ms in (0.4493, 0.4566):
        flat = [(8, 0.41), (16, ms), (32, 0.4560), (64, 0.5102), (128, 0.6079), (264, 0.876), (792, 2.07)]
        assert Speed(792, 4096, flat).second_batch == 16
    assert Speed(64, 64).second_batch == 16  # nothing was measured
    assert Speed(8, 64).second_batch == 8


@pytest.mark.parametrize("in_flight", [0, 8])
def test_batches_are_a_quarter_of_the_tree_when_time_is_proportional(in_flight: int) -> None:
    sizes = BatchSizes.alone(CPU, DEFAULTS, TIMED).rule
    assert [sizes.wanted(visits, in_flight) for visits in (0, 20, 32, 400)] == [4, 5, 8, 8]


@pytest.mark.parametrize("device", [FAST, CPU])
def test_a_size_that_the_user_has_fixed_is_kept(device: Speed) -> None:
    sizes = BatchSizes.alone(device, Options(minibatch_size=16), TIMED).rule
    assert [sizes.wanted(visits, 16) for visits in (0, 40, 100_000)] == [4, 10, 16]


def test_options_set_the_part_of_the_tree_and_what_is_filled() -> None:
    options = Options(visits_per_position=100, look_ahead=20)
    for device in (FAST, CPU):
        for sizes in (
            BatchSizes.alone(device, options, TIMED),
            BatchSizes.pooled(device, options, TIMED, 64, 1),
        ):
            assert sizes.filled == 20
            assert [sizes.rule.wanted(visits, 0) for visits in (0, 399)] == [2, min(3, sizes.best)]
    without = BatchSizes.alone(FAST, Options(look_ahead=0), TIMED)
    assert without.filled == 0
    assert without.rule.wanted(400, 0) == BatchSizes.alone(FAST, DEFAULTS, TIMED).rule.wanted(400, 0)
    assert (
        BatchSizes.alone(Speed(8, 16), Options(look_ahead=64, minibatch_size=64), TIMED).rule.capacity == 16
    )


@pytest.mark.parametrize("limits", [TIMED, Limits(nodes=400)])
@pytest.mark.parametrize("visits", [0, 400, 4000])
@pytest.mark.parametrize("device", [FAST, LARGE, CPU])
@pytest.mark.parametrize(("searches", "processes"), [(1, 1), (4, 1), (64, 1), (64, 13), (140, 32)])
def test_one_of_many_searches_wants_no_larger_part(
    device: Speed, visits: int, searches: int, processes: int, limits: Limits
) -> None:
    alone = BatchSizes.alone(device, DEFAULTS, limits)
    pooled = BatchSizes.pooled(device, DEFAULTS, limits, searches, processes)
    first = alone.rule.wanted(visits, 0)  # Of two batches, perhaps.
    assert pooled.rule.wanted(visits, 0) <= first + alone.rule.wanted(visits, first)
    if searches > 1:
        assert pooled.in_flight == 1


@pytest.mark.parametrize(
    ("best", "milliseconds", "searches", "positions"),
    [
        (32, 40.0, 2, 32),  # one at work, one waiting
        (32, 40.0, 8, 8),
        (8, 10.0, 8, 4),  # two would do, but four weaken no search
        (8, 10.0, 30, 3),
        (32, 40.0, 64, 1),
        (32, 40.0, 500, 1),
        (32, 20.0, 500, 2),  # 1,600 positions/s: one at a time would be too many steps
        (256, 4.0, 64, 16),  # 64,000 positions/s: a few at a time, or the steps are too many
        (4, 0.01, 64, 4),  # never more than is recommended
    ],
)
def test_searches_share_two_batches(best: int, milliseconds: float, searches: int, positions: int) -> None:
    assert positions_per_step(measured_once(best, milliseconds), searches) == positions


@pytest.mark.parametrize(
    ("best", "milliseconds", "searches", "processes", "positions"),
    [
        (1056, 1.5, 64, 1, MAX_FILLED),  # a small network on a fast GPU
        (1056, 1.5, 64, 12, MAX_FILLED),
        (1056, 1.5, 512, 12, 17),
        (1056, 1.5, 64, 32, 0),  # so many processes feed it without
        (264, 5.4, 64, 2, 0),  # a large network: the device has enough to do
        (264, 5.4, 4, 2, 16),  # four searches fill what is flat
        (8, 10.0, 2, 1, 0),  # a CPU
    ],
)
def test_searches_look_ahead_when_devices_starve(
    best: int, milliseconds: float, searches: int, processes: int, positions: int
) -> None:
    assert filled_step(measured_once(best, milliseconds), searches, processes) == positions


def test_games_at_once_fill_two_batches() -> None:
    assert [device.games for device in (CPU, LARGE, FAST)] == [2, 66, 256]


def test_several_devices_count_as_one_of_their_rate() -> None:
    slow = Speed(16, 64, [(1, 10.0), (16, 36.0)])
    both = Speed.together([CPU, slow])
    assert (both.best, both.most) == (24, 64)
    assert both.curve == [(1, 1.3), (8, 9.0), (9, 10.0), (17, 18.0), (48, 36.0)]
    assert Speed.together([CPU, CPU]).rate == 2 * CPU.rate
    assert Speed.together([CPU, CPU]).games == 2 * CPU.games
    assert Speed.together([CPU]) is CPU

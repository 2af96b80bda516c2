"""How many positions a search asks for: by the tree, by the device's curve, by the time that is left."""

from __future__ import annotations

import pytest

from engine.search.batching import BatchSizes, flat_batch

FLAT_CURVE = [(1, 0.15), (8, 0.20), (32, 0.22), (64, 0.24), (128, 0.27), (1056, 1.6)]
"""Of a GPU with many processors."""

PROPORTIONAL_CURVE = [(1, 1.3), (8, 9.0), (16, 18.0), (32, 36.0)]
"""Of a CPU."""


def test_batches_fit_the_time_left() -> None:
    sizes = BatchSizes(64, [(1, 2.0), (8, 5.0), (32, 12.0), (64, 20.0), (256, 70.0)])
    assert [sizes.fitting(ms) for ms in (0.5, 2.0, 11.9, 12.0, 1000.0)] == [1, 1, 8, 32, 64]
    assert BatchSizes(256).fitting(0.1) == 256


def test_large_trees_take_larger_batches_where_these_are_quick() -> None:
    curve = [(1, 2.0), (8, 5.0), (16, 9.0), (32, 17.0), (64, 120.0)]
    sizes = BatchSizes.of(16, 1024, curve)
    assert [sizes.in_tree(visits) for visits in (1, 1023, 1024, 100_000)] == [16, 16, 32, 32]
    early = BatchSizes(33, curve, largest=99, large_tree=32)
    assert [early.in_tree(visits) for visits in (1, 1055, 1056, 10_000)] == [33, 33, 99, 99]
    assert BatchSizes.of(32, 1024, curve).in_tree(100_000) == 32  # 64 take too long
    assert BatchSizes.of(64, 48, curve).in_tree(100_000) == 48  # no more than the evaluator takes


def test_a_flat_curve_is_filled_and_a_proportional_one_is_not() -> None:
    assert flat_batch(FLAT_CURVE) == 64
    assert flat_batch([(1, 0.8), (8, 1.0), (32, 1.2), (64, 2.0)]) == 32
    assert flat_batch(PROPORTIONAL_CURVE) == 0
    assert flat_batch([(1, 1.0)]) == 0
    assert flat_batch([]) == 0
    assert BatchSizes.of(1056, 4096, FLAT_CURVE, ahead=True).filled == 64
    assert BatchSizes.of(1056, 48, FLAT_CURVE, ahead=True).filled == 48  # no more than the evaluator takes
    assert BatchSizes.of(1056, 4096, FLAT_CURVE).filled == 0
    assert BatchSizes.of(1056, 4096, FLAT_CURVE, ahead=True, fixed=16).filled == 0


def test_on_a_flat_device_positions_under_way_are_a_small_part_of_the_tree() -> None:
    sizes = BatchSizes.of(1056, 4096, FLAT_CURVE, ahead=True)
    wanted = {0: 2, 63: 2, 96: 3, 1600: 50, 33_792: 1056, 60_000: 1056}
    assert {visits: sizes.wanted(visits, 0) for visits in wanted} == wanted
    for visits in (0, 1600, 33_792):
        assert sizes.wanted(visits, 50) == 0  # a second batch would be a crumb, or too much
    assert sizes.wanted(32 * 1056 + 32 * 50, 50) == 1056


@pytest.mark.parametrize("under_way", [0, 8])
def test_where_time_is_proportional_batches_are_a_quarter_of_the_tree(under_way: int) -> None:
    sizes = BatchSizes.of(8, 1024, PROPORTIONAL_CURVE, ahead=True)
    assert [sizes.wanted(visits, under_way) for visits in (0, 20, 32, 400)] == [4, 5, 8, 8]


@pytest.mark.parametrize("curve", [FLAT_CURVE, PROPORTIONAL_CURVE])
def test_a_size_that_the_user_has_fixed_is_kept(curve: list[tuple[int, float]]) -> None:
    sizes = BatchSizes.of(64, 1024, curve, fixed=16, ahead=True)
    assert [sizes.wanted(visits, 16) for visits in (0, 40, 100_000)] == [4, 10, 16]

# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounding to e4m3, against the list of all its numbers."""

from typing import Any

import numpy as np
import pytest

from evaluator.network.e4m3 import LARGEST, E4m3Inputs, codes, decoded, nearest, rounded_matrix, scale_for


def magnitudes() -> list[tuple[float, int]]:
    """Every number from 0 up with its code, from the definition: exponents from -6 up, of which the last has
    no room for 480, whose code is NaN."""
    subnormal = [(mantissa * 2.0**-9, mantissa) for mantissa in range(8)]
    normal = [
        ((1 + mantissa / 8) * 2.0 ** (exponent - 7), exponent << 3 | mantissa)
        for exponent in range(1, 16)
        for mantissa in range(8)
    ]
    return subnormal + normal[:-1]


def test_codes_and_numbers_are_those_of_the_definition() -> None:
    values, bits = (np.array(each) for each in zip(*magnitudes(), strict=True))
    assert values.max() == LARGEST
    assert np.array_equal(decoded(bits.astype(np.uint8)), values.astype(np.float32))
    assert np.array_equal(decoded((bits[1:] | 0x80).astype(np.uint8)), -values[1:].astype(np.float32))
    assert np.array_equal(codes(values), bits)
    assert np.array_equal(codes(-values), np.where(bits > 0, bits | 0x80, 0))  # never minus zero


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounds_to_the_nearest_and_ties_to_even(dtype: Any) -> None:
    values = np.array([value for value, _ in magnitudes()], dtype)
    assert np.array_equal(nearest(values), values)
    assert np.array_equal(nearest(-values), -values)
    middle = (values[:-1] + values[1:]) / 2
    even = np.where(np.arange(len(middle)) % 2 == 0, values[:-1], values[1:])
    assert np.array_equal(nearest(middle), even)
    assert np.array_equal(nearest(np.nextafter(middle, np.inf, dtype=dtype)), values[1:])
    assert np.array_equal(nearest(np.nextafter(middle, -np.inf, dtype=dtype)), values[:-1])
    assert nearest(values).dtype == dtype
    assert list(nearest(np.array([449.0, -1e30, np.inf], dtype))) == [LARGEST, -LARGEST, LARGEST]
    assert np.isnan(nearest(np.array([np.nan], dtype)))[0]


@pytest.mark.parametrize("largest", [448.0, 449.0, 447.9, 1e-3, 3.0])
def test_a_scale_is_the_largest_power_of_two_that_fits(largest: float) -> None:
    scale = scale_for(largest)
    assert np.log2(scale) % 1 == 0
    assert largest * scale <= LARGEST < 2 * largest * scale


def test_nothing_but_zeros_has_a_scale_too() -> None:
    assert scale_for(0.0) == 1.0
    assert not rounded_matrix(np.zeros((2, 3), np.float32)).any()


def test_rounded_weights_are_codes_of_their_own_scale() -> None:
    """What packs the weights knows only the rounded ones."""
    for seed in range(20):
        weights = np.random.default_rng(seed).standard_normal((8, 16)).astype(np.float32)
        once = rounded_matrix(weights)
        scale = np.float32(scale_for(float(np.abs(once).max())))
        assert np.array_equal(decoded(codes(once * scale)) / scale, once)
        assert np.abs(once - weights).max() <= np.abs(weights).max() / 16


def test_inputs_are_rounded_on_their_scale() -> None:
    x = np.array([[1.0, 1.06, 1000.0, 0.001]], np.float32)
    # With 1/8 ahead 0.001 is a sixteenth of the smallest step, and 1000 fits.
    assert list(E4m3Inputs(0.125).rounded(x)[0]) == [1.0, 1.0, 1024.0, 0.0]

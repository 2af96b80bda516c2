"""Rounding to whole numbers of 8 bits, each row on its own scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evaluator.network.int8 import LARGEST, Int8Inputs, codes, rounded, scales


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_rounded_on_the_scale_of_their_largest(dtype: Any) -> None:
    x = np.array([[127.0, -1.4, 0.5, 1.5], [0.0, -2.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype)
    assert codes(x).tolist() == [[127, -1, 0, 2], [0, -127, 64, 0], [0, 0, 0, 0]]  # ties to even
    assert scales(x)[:2, 0] == pytest.approx([1, 2 / 127])
    found = Int8Inputs().rounded(x)
    assert found.dtype == dtype
    assert found[1].tolist() == pytest.approx([0, -2, 128 / 127, 0])
    assert not found[2].any()


def test_an_error_is_at_most_half_a_step_of_the_row() -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((3, 50, 64)) * np.exp(rng.standard_normal((3, 50, 1)) * 5)).astype(np.float32)
    steps = np.abs(x).max(axis=-1, keepdims=True) / LARGEST
    off = np.abs(rounded(x) - x) / steps
    assert off.max() <= 0.5001
    assert off.max() > 0.49
    assert np.abs(codes(x)).max(axis=-1).min() == LARGEST


def test_what_was_rounded_keeps_its_codes() -> None:
    """What packs the weights knows only the rounded ones."""
    for seed in range(20):
        weights = np.random.default_rng(seed).standard_normal((8, 48)).astype(np.float32)
        once = rounded(weights)
        assert np.array_equal(codes(once), codes(weights))
        assert np.allclose(codes(once) * scales(once), once, rtol=1e-6)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights as they are packed for the device."""

import numpy as np

from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan import weights as pack


def test_the_counters_weights_are_normal_numbers_in_fp16() -> None:
    """They are about a hundredth of the others', as the plane counts to 99; the factor changes none."""
    weights = np.full((8, 112), 0.01, np.float32)
    weights[:, pack.RULE50_PLANE] = np.linspace(1e-5, 1e-4, 8, dtype=np.float32)
    stored = pack.matrix(pack.of_planes(weights), Precision.FP16).astype(np.float32)
    own = stored[:, pack.RULE50_PLANE]
    assert np.abs(own).min() >= 2.0**-14
    assert np.allclose(own / pack.RULE50_DIVISOR, weights[:, pack.RULE50_PLANE], rtol=2.0**-11, atol=0)
    others = np.arange(112) != pack.RULE50_PLANE
    assert np.array_equal(stored[:, others], weights[:, others].astype(np.float16).astype(np.float32))


def test_fragments_are_what_lanes_of_mfma_hold() -> None:
    """Lane l has row l % 16, and of 32 columns the 8 from 8 * (l // 16) on."""
    weights = np.arange(40 * 64, dtype=np.uint16).reshape(40, 64)
    found = pack.fragments(weights)
    assert found.shape == (3, 2, 4, 16, 8)
    lanes = found.reshape(3, 2, 64, 8)
    for row, column, lane in ((0, 0, 0), (1, 1, 37), (2, 0, 55)):
        expected = weights[16 * row + lane % 16, 32 * column + 8 * (lane // 16) :][:8]
        assert np.array_equal(lanes[row, column, lane], expected)
    assert not lanes[2, :, 8:16].any()  # rows 40 to 47

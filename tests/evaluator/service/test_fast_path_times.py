# SPDX-License-Identifier: GPL-3.0-or-later
"""What the fast path says a device has spent on batches that overlap, whichever ends first."""

import numpy as np
import pytest

from evaluator.service.fast_path import times_of_their_own


@pytest.mark.parametrize(
    ("launched", "ended", "own", "alone"),
    [
        ([0.0], [1.0], [1.0], [True]),
        ([0.0, 1.5, 3.0], [1.0, 2.5, 4.0], [1.0, 1.0, 1.0], [True, True, True]),
        ([0.0, 0.5, 4.0], [2.0, 4.0, 5.0], [2.0, 2.0, 1.0], [False, False, True]),
        # The second one to be launched ends first: the device was busy from the first launch on.
        ([1.0, 0.0], [2.0, 3.0], [2.0, 1.0], [False, False]),
        # One that ends last was there all the time, though its neighbours do not overlap each other.
        ([0.0, 1.1, 0.5], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [False, False, False]),
    ],
)
def test_batches_that_overlap_share_the_time(
    launched: list[float], ended: list[float], own: list[float], alone: list[bool]
) -> None:
    own_ms, lonely = times_of_their_own(np.array(launched), np.array(ended))
    assert own_ms.tolist() == pytest.approx(own)
    assert lonely.tolist() == alone

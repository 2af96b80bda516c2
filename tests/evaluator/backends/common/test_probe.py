# SPDX-License-Identifier: GPL-3.0-or-later
"""The positions that backends are checked and timed with."""

import numpy as np

from evaluator.backends.common.probe import probe_batch, uneven_batch
from protocol.wire.codec import check_batch


def test_probe_positions_keep_the_protocol_and_repeat_themselves() -> None:
    batch = probe_batch(100)
    check_batch(batch)
    assert np.array_equal(batch.positions, probe_batch(100).positions)
    assert np.array_equal(batch.moves, probe_batch(100).moves)
    assert not np.array_equal(batch.positions, probe_batch(100, seed=1).positions)


def test_uneven_positions_have_as_many_moves_as_they_are_to_have() -> None:
    batch = uneven_batch((35, 1, 218), seed=7)
    check_batch(batch)
    assert np.diff(batch.move_offsets).tolist() == [35, 1, 218]
    assert np.array_equal(batch.positions, probe_batch(3, seed=7).positions)

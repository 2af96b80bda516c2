"""The positions that backends are checked and timed with."""

from __future__ import annotations

import numpy as np

from evaluator.backends.probe import probe_batch
from protocol.codec import check_batch


def test_probe_positions_keep_the_protocol_and_repeat_themselves() -> None:
    batch = probe_batch(100)
    check_batch(batch)
    assert np.array_equal(batch.positions, probe_batch(100).positions)
    assert np.array_equal(batch.moves, probe_batch(100).moves)
    assert not np.array_equal(batch.positions, probe_batch(100, seed=1).positions)

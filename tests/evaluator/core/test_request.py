# SPDX-License-Identifier: GPL-3.0-or-later
"""The core accepts the same batches as the check that names what is wrong."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator._core import is_sound
from protocol.batch import MAX_LEGAL_MOVES, POLICY_SIZE, PositionBatch
from protocol.errors import BadRequest
from protocol.wire.codec import check_batch
from tests.backends.batches import varied_batch


def accepted(batch: PositionBatch) -> bool:
    try:
        check_batch(batch)
    except BadRequest:
        return False
    return True


@given(st.integers(1, 20), st.integers(0, 1000))
def test_sound_batches_are_accepted(count: int, seed: int) -> None:
    batch = varied_batch(count, seed)
    assert accepted(batch)
    assert is_sound(batch)


@given(st.data())
def test_one_wrong_entry_is_judged_as_by_the_check(data: st.DataObject) -> None:
    batch = varied_batch(data.draw(st.integers(1, 6)), data.draw(st.integers(0, 100)))
    field = data.draw(st.sampled_from(["rule50", "reserved", "move_offsets", "moves"]))
    if field == "rule50":
        clocks = st.sampled_from([0.0, -1.0, 1e30, math.inf, -math.inf, math.nan])
        batch.positions["rule50"][data.draw(st.integers(0, len(batch) - 1))] = data.draw(clocks)
    elif field == "reserved":
        batch.positions["reserved"][data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 3))
    elif field == "move_offsets":
        offset = data.draw(st.integers(0, 2**32 - 1) | st.integers(0, 2 * MAX_LEGAL_MOVES))
        batch.move_offsets[data.draw(st.integers(0, len(batch)))] = offset
    elif len(batch.moves):
        move = data.draw(st.integers(POLICY_SIZE - 2, POLICY_SIZE + 1) | st.integers(0, 65535))
        batch.moves[data.draw(st.integers(0, len(batch.moves) - 1))] = move
    assert is_sound(batch) == accepted(batch)


def test_a_wrong_number_of_offsets_is_an_error() -> None:
    batch = varied_batch(3)
    with pytest.raises(ValueError, match="move_offsets"):
        is_sound(PositionBatch(batch.positions, np.zeros(3, np.uint32), batch.moves))

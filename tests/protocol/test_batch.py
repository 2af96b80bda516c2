# SPDX-License-Identifier: GPL-3.0-or-later
"""Cutting and joining batches of positions and of evaluations."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protocol.batch import POLICY_SIZE, POSITION_DTYPE, EvaluationBatch, PositionBatch


def positions(move_counts: list[int], seed: int = 0) -> PositionBatch:
    """A batch of random positions with so many moves each."""
    rng = np.random.default_rng(seed)
    records = np.zeros(len(move_counts), POSITION_DTYPE)
    records["planes"] = rng.integers(0, 2**64, records["planes"].shape, dtype=np.uint64)
    records["rule50"] = rng.integers(0, 100, len(move_counts))
    offsets = np.cumsum([0, *move_counts]).astype(np.uint32)
    return PositionBatch(records, offsets, rng.integers(0, POLICY_SIZE, sum(move_counts), dtype=np.uint16))


def evaluations(batch: PositionBatch, seed: int = 0) -> EvaluationBatch:
    """Random evaluations of a batch."""
    rng = np.random.default_rng(seed)
    shapes = (len(batch.moves),), (len(batch), 3), (len(batch),)
    return EvaluationBatch(*(rng.random(shape, np.float32) for shape in shapes))


def assert_same(one: PositionBatch, other: PositionBatch) -> None:
    """Equal content and dtypes."""
    for name in ("positions", "move_offsets", "moves"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype
        assert np.array_equal(left, right)


move_counts = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@given(st.lists(move_counts, min_size=1, max_size=6))
def test_concatenated_parts_are_found_again_by_slicing(counts: list[list[int]]) -> None:
    parts = [positions(each, seed) for seed, each in enumerate(counts)]
    whole = PositionBatch.concatenate(parts)
    assert_same(whole, positions_of_one_array(parts))
    start = 0
    for part in parts:
        assert_same(whole.slice(start, start + len(part)), part)
        start += len(part)


def positions_of_one_array(parts: list[PositionBatch]) -> PositionBatch:
    """The same by adding up one position after the other."""
    offsets, moves, records = [0], [], []
    for part in parts:
        for index in range(len(part)):
            own = part.moves[part.move_offsets[index] : part.move_offsets[index + 1]]
            moves += list(own)
            offsets.append(len(moves))
            records.append(part.positions[index])
    return PositionBatch(
        np.array(records, POSITION_DTYPE), np.array(offsets, np.uint32), np.array(moves, np.uint16)
    )


@given(move_counts, st.data())
def test_slice_shares_memory_and_counts_its_moves_from_zero(counts: list[int], data: st.DataObject) -> None:
    batch = positions(counts)
    start = data.draw(st.integers(0, len(batch)))
    stop = data.draw(st.integers(start, len(batch)))
    part = batch.slice(start, stop)
    assert list(np.diff(part.move_offsets)) == counts[start:stop]
    assert part.move_offsets[0] == 0
    assert np.array_equal(part.positions, batch.positions[start:stop])
    assert start == stop or np.shares_memory(part.positions, batch.positions)


def test_a_single_part_is_not_copied() -> None:
    batch = positions([2, 3])
    assert PositionBatch.concatenate([batch]) is batch
    answer = evaluations(batch)
    assert EvaluationBatch.concatenate([answer]) is answer


def test_concatenated_batch_is_writable_apart_from_its_parts() -> None:
    parts = [positions([1], 1), positions([2], 2)]
    whole = PositionBatch.concatenate(parts)
    before = parts[0].positions.copy()
    whole.positions["rule50"] = 99
    assert np.array_equal(parts[0].positions, before)


@given(st.lists(move_counts, min_size=1, max_size=6))
def test_a_split_evaluation_is_concatenated_to_the_same(counts: list[list[int]]) -> None:
    batches = [positions(each, seed) for seed, each in enumerate(counts)]
    answers = [evaluations(batch, seed) for seed, batch in enumerate(batches)]
    whole = EvaluationBatch.concatenate(answers)
    parts = list(whole.split((len(batch), len(batch.moves)) for batch in batches))
    for part, answer in zip(parts, answers, strict=True):
        assert np.array_equal(part.logits, answer.logits)
        assert np.array_equal(part.wdl, answer.wdl)
        assert np.array_equal(part.moves_left, answer.moves_left)

# SPDX-License-Identifier: GPL-3.0-or-later
"""What a backend makes of batches of every size and form."""

from dataclasses import replace

import numpy as np
import pytest

from evaluator.backends import Backend, BackendError
from evaluator.backends.common.probe import probe_batch
from evaluator.network.random_network import random_network
from protocol.batch import EvaluationBatch, PositionBatch
from tests.backends.batches import as_result, part, split, varied_batch
from tests.backends.subjects import Subject, assert_close
from tests.evaluator.golden import all_moves

SIZES = (1, 2, 3, 4, 7, 31, 33, 64, 130)


def sizes(backend: Backend, subject: Subject) -> list[int]:
    largest = 4 if subject.slow else backend.max_batch
    return [size for size in SIZES if size <= largest]


def same_bits(one: EvaluationBatch, other: EvaluationBatch) -> bool:
    names = ("logits", "wdl", "moves_left")
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names)


@pytest.mark.integration
def test_a_position_does_not_depend_on_its_batch(subject: Subject) -> None:
    """Neither on how many there are beside it, nor on which, nor on its place: what pads a batch is not
    seen."""
    with subject.open(random_network("tiny-attention")) as backend:
        for size in sizes(backend, subject):
            batch = varied_batch(size, seed=size)
            result = backend.evaluate(batch)
            backwards = range(size - 1, -1, -1)
            turned = part(batch, backwards)
            again = split(backend.evaluate(turned), turned)[::-1]
            for one, other in zip(split(result, batch), again, strict=True):
                assert_close(subject, backend, as_result(one), as_result(other))
            for index in {0, size // 2, size - 1}:
                alone = backend.evaluate(part(batch, [index]))
                assert_close(subject, backend, as_result(split(result, batch)[index]), alone)


def test_deterministic_means_the_same_bits_in_every_batch(subject: Subject) -> None:
    if subject.deterministic is None:
        pytest.skip(f"{subject.name} has no such mode")
    with subject.open(random_network("tiny-attention"), **subject.deterministic) as backend:
        largest = max(sizes(backend, subject))
        batch = varied_batch(largest, seed=3)
        alone = [backend.evaluate(part(batch, [index])) for index in range(largest)]
        for size in sizes(backend, subject):
            for start in {0, (largest - size) // 2, largest - size}:
                some = part(batch, range(start, start + size))
                for offset, found in enumerate(split(backend.evaluate(some), some)):
                    assert same_bits(as_result(found), alone[start + offset]), (size, start + offset)


def test_the_same_batch_gives_the_same_bits_twice(subject: Subject) -> None:
    with subject.open(random_network("tiny-attention")) as backend:
        batch = varied_batch(4 if subject.slow else 7)
        assert same_bits(backend.evaluate(batch), backend.evaluate(batch))


def test_logits_come_in_the_order_of_the_moves(subject: Subject) -> None:
    forward = probe_batch(2)
    backward = replace(forward, moves=np.concatenate([forward.moves[:35][::-1], forward.moves[35:]]))
    with subject.open(random_network("tiny-resnet")) as backend:
        straight, turned = backend.evaluate(forward).logits, backend.evaluate(backward).logits
    assert np.array_equal(straight[:35][::-1], turned[:35])
    assert np.array_equal(straight[35:], turned[35:])


def test_positions_without_legal_moves_are_evaluated(subject: Subject) -> None:
    positions = probe_batch(3).positions
    some = PositionBatch(positions, np.array([0, 0, 2, 2], np.uint32), np.array([5, 9], np.uint16))
    none = PositionBatch(positions, np.zeros(4, np.uint32), np.zeros(0, np.uint16))
    with subject.open(random_network("tiny-attention")) as backend:
        full, mixed, empty = (backend.evaluate(each) for each in (all_moves(positions), some, none))
    expected = replace(full, logits=full.logits[[1858 + 5, 1858 + 9]])
    assert_close(subject, backend, mixed, expected)
    assert_close(subject, backend, empty, replace(full, logits=full.logits[:0]))


def test_whole_policy_vectors_of_a_full_batch(subject: Subject) -> None:
    """More moves than any chess position has: tests and `verify` ask for them."""
    with subject.open(random_network("tiny-resnet")) as backend:
        batch = all_moves(probe_batch(min(backend.max_batch, 64), seed=4).positions)
        result = backend.evaluate(batch)
        last = backend.evaluate(part(batch, [len(batch) - 1]))
    assert_close(subject, backend, as_result(split(result, batch)[-1]), last)


def test_max_batch_is_taken_and_one_more_is_taken_or_refused(subject: Subject) -> None:
    with subject.open(random_network("tiny-resnet")) as backend:
        batch = probe_batch(backend.max_batch + 1, seed=6)
        result = backend.evaluate(part(batch, range(backend.max_batch)))
        assert len(result.wdl) == backend.max_batch
        try:
            more = backend.evaluate(batch)
        except BackendError as error:
            assert str(backend.max_batch) in str(error)
        else:
            assert len(more.wdl) == backend.max_batch + 1


def test_results_are_plain_float32_arrays_and_inputs_are_left_alone(subject: Subject) -> None:
    batch = varied_batch(3)
    arrays = (batch.positions, batch.move_offsets, batch.moves)
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.flags.writeable = False  # as those that come from a socket
    with subject.open(random_network("tiny-attention")) as backend:
        result = backend.evaluate(batch)
    for answer in (result.logits, result.wdl, result.moves_left):
        assert answer.dtype == np.float32
        assert answer.flags.c_contiguous
    assert (result.wdl.shape, result.moves_left.shape) == ((3, 3), (3,))
    assert [array.tobytes() for array in arrays] == before


@pytest.mark.parametrize("name", ["tiny-attention", "tiny-resnet"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of the reference
def test_backend_keeps_infinite_results_in_their_position(subject: Subject, name: str, value: float) -> None:
    """The service looks for it in what a backend answers: an overflow must not end as a number."""
    batch = probe_batch(3, seed=8)
    good = part(batch, [0, 2])
    batch.positions["rule50"][1] = value
    with subject.open(random_network(name)) as backend:
        expected = backend.evaluate(good)
        try:
            result = backend.evaluate(batch)
        except BackendError:
            return
    first, bad, last = split(result, batch)
    assert not np.isfinite(bad[0]).all() or not np.isfinite(bad[1]).all()
    for found, right in zip((first, last), split(expected, good), strict=True):
        assert_close(subject, backend, as_result(found), as_result(right))

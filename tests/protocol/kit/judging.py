# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults in the positions of a request, beyond violations of the protocol."""

from collections.abc import Iterator
from functools import cache

from protocol.batch import PositionBatch
from tests.protocol.kit.vectors import vectors

ONES = 2**64 - 1


@cache
def _indices_of_vectors() -> dict[bytes, tuple[str, tuple[int, ...]]]:
    """Return by record: what the test vector shows, and its policy indices in ascending order."""
    return {
        bytes.fromhex(vector["record"]): (vector["shows"], tuple(sorted(vector["policy_indices"])))
        for vector in vectors()
    }


def faults_of(batch: PositionBatch) -> Iterator[str]:
    """Yield each fault of positions in input format 1."""
    for number, position in enumerate(batch.positions):
        masks = [int(mask) for mask in position["planes"]]
        first, last = batch.move_offsets[number : number + 2]
        indices = tuple(sorted(batch.moves[first:last].tolist()))
        if masks[109] != ONES:
            yield "plane 109 needs a full mask, whatever its value"
        if masks[111] != ONES:
            yield "plane 111 must be ones"
        if masks[110]:
            yield "plane 110 must be 0 in input format 1"
        if any(masks[plane] not in (0, ONES) for plane in (104, 105, 106, 107, 108)):
            yield "planes 104 to 108 are all zeros or all ones in input format 1"
        if masks[5].bit_count() != 1 or masks[11].bit_count() != 1:
            yield "planes 5 and 11 must have one king each"
        if sum(mask.bit_count() for mask in masks[:12]) != _union(masks[:12]).bit_count():
            yield "two pieces stand on one square in planes 0 to 11"
        if len(set(indices)) != len(indices):
            yield "a position has the same policy index twice"
        shows, wanted = _indices_of_vectors().get(position.tobytes(), ("", indices))
        if indices != wanted:
            yield f"the policy indices of the test vector {shows!r} are not those of its legal moves"


def _union(masks: list[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union

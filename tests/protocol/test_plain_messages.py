# SPDX-License-Identifier: GPL-3.0-or-later
"""What the core reads of a message is what the codec reads of it without the core, or nothing."""

import math
from typing import Any
from unittest.mock import patch

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from protocol._core import plain_evaluate, plain_result
from protocol.batch import EvaluationBatch
from protocol.errors import RemoteError
from protocol.wire import codec
from protocol.wire.codec import decode_reply, decode_request, encode, encode_evaluate
from protocol.wire.messages import Evaluate, Result
from tests.backends.batches import varied_batch
from tests.rounds import rounds

BATCH = varied_batch(3, 1)
ARRAYS = [np.asarray(each).tobytes() for each in encode(Evaluate(1, BATCH))[1:]]
MOVES = len(BATCH.moves)
ANSWER = [bytes(4 * MOVES), bytes(36), bytes(12)]

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([1, 3, 127, 128, 2**63 - 1]),
    st.floats(width=32),
    st.text(max_size=300),
    st.sampled_from(["play", "analysis", "selfplay", "evaluate", "result", "zstd", "", "net"]),
    st.binary(max_size=3),
    st.lists(st.integers(0, 3), max_size=2),
)


def headers(good: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Headers that are good but for some fields, then perhaps but for some bytes."""
    names = [*good, "compression", "another", "é"]
    changes = st.dictionaries(st.sampled_from(names), VALUES, max_size=3)
    packers = st.sampled_from([{}, {"use_single_float": True}])

    def pack(changes: dict[str, Any], options: dict[str, bool], damage: list[tuple[int, int]]) -> bytes:
        packed = bytearray(msgpack.packb({**good, **changes}, **options))
        for at, value in damage:
            packed[at % len(packed)] = value
        return bytes(packed)

    damage = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2)
    return st.builds(pack, changes, packers, damage | st.just([]))


def parts(message: Any) -> Any:
    """A message as something that can be compared."""
    arrays: tuple[NDArray[Any], ...]
    facts: tuple[Any, ...]
    if isinstance(message, Evaluate):
        arrays = message.batch.positions, message.batch.move_offsets, message.batch.moves
        facts = message.id, message.priority, message.deadline_ms, message.network, message.target_ms
    elif isinstance(message, Result):
        evaluation = message.evaluation
        arrays = evaluation.logits, evaluation.wdl, evaluation.moves_left
        numbers = message.id, message.queue_ms, message.compute_ms, message.batch
        facts = *numbers, message.instance, message.network
    else:
        return message
    return (*facts, [(a.tobytes(), a.dtype, a.shape) for a in arrays])


def outcome(decode: Any, frames: list[Any]) -> Any:
    try:
        return parts(decode(frames))
    except RemoteError as error:
        return type(error), str(error)


def assert_read_as_without_the_core(reader: str, decode: Any, frames: list[Any]) -> None:
    """reader: what reads with the core."""
    with_core = outcome(decode, frames)
    with patch.object(codec, reader, lambda frames: None):
        assert outcome(decode, frames) == with_core


@settings(max_examples=rounds(500))
@given(
    headers(
        {
            "type": "evaluate",
            "id": 7,
            "count": 3,
            "class": "play",
            "network": "net",
            "deadline_ms": 2.5,
            "target_ms": 10.0,
        }
    )
)
def test_an_evaluate_is_read_as_without_the_core(header: bytes) -> None:
    assert_read_as_without_the_core("plain_evaluate", decode_request, [header, *ARRAYS])


@settings(max_examples=rounds(500))
@given(
    headers(
        {
            "type": "result",
            "id": 7,
            "queue_ms": 0.5,
            "compute_ms": 1,
            "batch": 3,
            "instance": "ab",
            "network": "c",
        }
    )
)
def test_a_result_is_read_as_without_the_core(header: bytes) -> None:
    assert_read_as_without_the_core("plain_result", decode_reply, [header, *ANSWER])


@settings(max_examples=rounds(300))
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_not(header: bytes) -> None:
    assert plain_evaluate([header, *ARRAYS]) is None
    assert plain_result([header, *ANSWER]) is None


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("change", [b"", b"\0", bytes(4)])
def test_arrays_of_another_size_are_left_to_the_codec(number: int, change: bytes) -> None:
    header = bytes(msgpack.packb({"type": "evaluate", "id": 1, "count": 3}))
    frames = [header, *ARRAYS]
    frames[number] = frames[number] + change if change else frames[number][:-1]
    assert_read_as_without_the_core("plain_evaluate", decode_request, frames)


def test_our_own_messages_are_plain() -> None:
    """So this is how those between an engine and an evaluator are read."""
    request: list[Any] = encode_evaluate(2**40, BATCH, "selfplay", 12.5, "bt4")
    assert plain_evaluate(request) == (2**40, 3, "selfplay", "bt4", 12.5, None)
    hurried: list[Any] = encode_evaluate(1, BATCH, "play", None, "", target_ms=8.0)
    assert plain_evaluate(hurried) == (1, 3, "play", "", None, 8.0)
    evaluation = EvaluationBatch(
        np.zeros(MOVES, np.float32), np.zeros((3, 3), np.float32), np.zeros(3, np.float32)
    )
    answer: list[Any] = encode(Result(9, evaluation, 0.25, 1.5, 64, "0123456789abcdef"))
    found = plain_result(answer)
    assert found == (9, 0.25, 1.5, 64, "0123456789abcdef", "")
    named: list[Any] = encode(Result(9, evaluation, 0.25, 1.5, 64, "0123456789abcdef", "9f" * 32))
    assert plain_result(named) == (9, 0.25, 1.5, 64, "0123456789abcdef", "9f" * 32)


@pytest.mark.parametrize(
    "frames",
    [
        [b"", b"", b""],
        encode_evaluate(1, BATCH, "play", math.inf, ""),
        encode_evaluate(1, BATCH, "play", None, "é"),
        encode_evaluate(1, BATCH, "play", None, "x" * 256),
    ],
)
def test_core_leaves_unusual_headers_to_the_codec(frames: list[Any]) -> None:
    assert plain_evaluate(frames) is None


def test_arrays_that_are_not_aligned_are_left_to_the_codec() -> None:
    header = bytes(msgpack.packb({"type": "evaluate", "id": 1, "count": 3}))
    odd = memoryview(b"x" + ARRAYS[0])[1:]
    assert plain_evaluate([header, odd, *ARRAYS[1:]]) is None
    assert isinstance(decode_request([header, odd, *ARRAYS[1:]]), Evaluate)

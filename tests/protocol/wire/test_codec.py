# SPDX-License-Identifier: GPL-3.0-or-later
"""The codec: what goes in comes out, and nothing from the wire is trusted."""

from dataclasses import fields
from typing import Any, get_args

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.batch import MAX_LEGAL_MOVES, POLICY_SIZE, POSITION_DTYPE, EvaluationBatch, PositionBatch
from protocol.errors import BadRequest, RemoteError, TooLarge
from protocol.wire.codec import decode_reply, decode_request, encode, peek_id
from protocol.wire.messages import Evaluate, Ping, Request, Result
from tests.protocol.test_schema import MESSAGES, kind
from tests.rounds import rounds

PLAIN = [message for message in MESSAGES if not isinstance(message, Evaluate | Result)]

RESULT = Result(
    9,
    EvaluationBatch(np.zeros(2, np.float32), np.zeros((1, 3), np.float32), np.zeros(1, np.float32)),
    queue_ms=0.0,
    compute_ms=1.0,
    batch=1,
)


def wire(message: Any) -> list[bytes]:
    """A message's frames as they arrive."""
    return [frame if isinstance(frame, bytes) else frame.tobytes() for frame in encode(message)]


def batch(count: int = 3, moves_each: int = 4) -> PositionBatch:
    positions = np.zeros(count, POSITION_DTYPE)
    positions["planes"] = np.arange(count)[:, None] + np.arange(112)
    positions["rule50"] = np.arange(count) / 2
    offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(moves_each)
    return PositionBatch(positions, offsets, np.arange(count * moves_each, dtype=np.uint16))


def evaluate_frames(**changes: Any) -> list[bytes]:
    """A good evaluate with header fields replaced (None removes one)."""
    frames = wire(Evaluate(9, batch(), "analysis", 100.0, "bt4"))
    header = {**msgpack.unpackb(frames[0]), **changes}
    frames[0] = msgpack.packb({key: value for key, value in header.items() if value is not None})
    return frames


@pytest.mark.parametrize("message", PLAIN, ids=kind)
def test_messages_survive_the_wire(message: Any) -> None:
    decode = decode_request if isinstance(message, get_args(Request)) else decode_reply
    assert decode(wire(message)) == message


def test_a_batch_survives_the_wire() -> None:
    sent = Evaluate(9, batch(), "analysis", 100.0, "bt4")
    received = decode_request(wire(sent))
    assert isinstance(received, Evaluate)
    assert (received.id, received.priority) == (9, "analysis")
    assert (received.deadline_ms, received.network) == (100.0, "bt4")
    for field in fields(PositionBatch):
        np.testing.assert_array_equal(getattr(received.batch, field.name), getattr(sent.batch, field.name))


def test_an_evaluation_survives_the_wire() -> None:
    random = np.random.default_rng(1)
    evaluation = EvaluationBatch(
        random.random(12, np.float32), random.random((3, 3), np.float32), random.random(3, np.float32)
    )
    received = decode_reply(wire(Result(9, evaluation, 0.5, 2.5, 64)))
    assert isinstance(received, Result)
    assert (received.queue_ms, received.compute_ms, received.batch) == (0.5, 2.5, 64)
    for field in fields(EvaluationBatch):
        np.testing.assert_array_equal(
            getattr(received.evaluation, field.name), getattr(evaluation, field.name)
        )


def test_arrays_are_views_of_the_frames() -> None:
    frames = wire(Evaluate(9, batch(16)))
    received = decode_request(frames)
    assert isinstance(received, Evaluate)
    assert np.shares_memory(received.batch.positions, np.frombuffer(frames[1], np.uint8))


def test_unaligned_frames_become_aligned_arrays() -> None:
    frames: list[Any] = wire(Evaluate(9, batch()))
    for index in (1, 2, 3):
        frames[index] = memoryview(b"x" + frames[index])[1:]
    received = decode_request(frames)
    assert isinstance(received, Evaluate)
    for field in fields(PositionBatch):
        assert getattr(received.batch, field.name).flags.aligned


def test_unknown_fields_are_ignored() -> None:
    assert decode_request([msgpack.packb({"type": "ping", "id": 1, "colour": "blue"})]) == Ping(1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": 0}, "id"),
        ({"id": True}, "id"),
        ({"id": "1"}, "id"),
        ({"id": 2**63}, "id"),
        ({"id": None}, "id"),
        ({"count": 0}, "count"),
        ({"count": 4}, "positions"),
        ({"count": -3}, "count"),
        ({"count": 3.0}, "count"),
        ({"class": "urgent"}, "class"),
        ({"class": 1}, "class"),
        ({"deadline_ms": float("nan")}, "deadline_ms"),
        ({"deadline_ms": float("inf")}, "deadline_ms"),
        ({"deadline_ms": "soon"}, "deadline_ms"),
        ({"network": 5}, "network"),
        ({"network": "x" * 2000}, "network"),
        ({"type": 5}, "type"),
        ({"type": "Evaluate"}, "unknown message type"),
    ],
)
def test_a_wrong_header_field_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        decode_request(evaluate_frames(**changes))


def broken_batches() -> list[tuple[str, PositionBatch]]:
    good = batch()
    descending, long, beyond = good.move_offsets.copy(), good.move_offsets.copy(), good.moves.copy()
    descending[1], descending[2] = 8, 4
    beyond[5] = POLICY_SIZE
    nan, infinite, reserved = (good.positions.copy() for _ in range(3))
    nan["rule50"][1], infinite["rule50"][2], reserved["reserved"][0] = np.nan, np.inf, 1
    many = np.zeros(MAX_LEGAL_MOVES + 9, np.uint16)
    long = np.array([0, MAX_LEGAL_MOVES + 1, len(many), len(many)], np.uint32)
    return [
        ("ascend", PositionBatch(good.positions, descending, good.moves)),
        ("ascend", PositionBatch(good.positions, long, many)),
        ("from 0", PositionBatch(good.positions, good.move_offsets + np.uint32(1), good.moves)),
        ("number of moves", PositionBatch(good.positions, good.move_offsets, good.moves[:-1])),
        ("move_offsets", PositionBatch(good.positions, good.move_offsets[:-1], good.moves)),
        ("policy index", PositionBatch(good.positions, good.move_offsets, beyond)),
        ("rule50", PositionBatch(nan, good.move_offsets, good.moves)),
        ("rule50", PositionBatch(infinite, good.move_offsets, good.moves)),
        ("reserved", PositionBatch(reserved, good.move_offsets, good.moves)),
    ]


@pytest.mark.parametrize(("said", "broken"), broken_batches(), ids=lambda value: str(value)[:20])
def test_a_wrong_array_is_named(said: str, broken: PositionBatch) -> None:
    with pytest.raises(BadRequest, match=said):
        decode_request(wire(Evaluate(1, broken)))


@pytest.mark.parametrize("moves", [0, MAX_LEGAL_MOVES])
def test_positions_without_moves_and_with_the_most_are_fine(moves: int) -> None:
    assert isinstance(decode_request(wire(Evaluate(1, batch(2, moves)))), Evaluate)


def test_too_many_positions_have_an_error_of_their_own() -> None:
    with pytest.raises(TooLarge, match="at most 2"):
        decode_request(wire(Evaluate(1, batch(3))), max_positions=2)


def test_frames_must_be_as_many_as_the_message_has() -> None:
    frames = evaluate_frames()
    for wrong in (frames[:1], frames[:3], [*frames, b""], [*wire(Ping(1)), b""]):
        with pytest.raises(BadRequest, match="frames"):
            decode_request(wrong)
    with pytest.raises(BadRequest, match="empty"):
        decode_request([])


def test_a_header_may_not_be_huge_or_deep() -> None:
    with pytest.raises(BadRequest, match="bytes"):
        decode_request([b"\x00" * (1 << 20)])
    with pytest.raises(BadRequest, match="msgpack"):
        decode_request([b"\x91" * 60000 + b"\x00"])


def test_the_id_of_a_broken_message_is_found_where_there_is_one() -> None:
    assert peek_id([msgpack.packb({"id": 5, "type": []})]) == 5
    assert peek_id([msgpack.packb({"id": "5"})]) == 0
    assert peek_id([b"\xc1"]) == 0
    assert peek_id([]) == 0


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_subnormal=False)  # onnxruntime, in the same process, flushes them
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=rounds(300))
@given(st.lists(st.binary(max_size=64), max_size=5))
def test_random_frames_are_refused_not_crashed_on(frames: list[bytes]) -> None:
    for decode in (decode_request, decode_reply):
        with pytest.raises(RemoteError):
            decode(frames)


@settings(max_examples=rounds(300))
@given(st.sampled_from([*PLAIN, Evaluate(9, batch()), RESULT]), st.data())
def test_messages_with_a_field_replaced_are_read_or_refused(message: Any, data: st.DataObject) -> None:
    frames = wire(message)
    header = msgpack.unpackb(frames[0])
    key = data.draw(st.sampled_from(sorted(header)))
    frames[0] = msgpack.packb({**header, key: data.draw(values)})
    for decode in (decode_request, decode_reply):
        try:
            decode(frames)
        except RemoteError as error:
            assert str(error)


@settings(max_examples=rounds(300))
@given(st.integers(0, 3), st.integers(0, 1 << 16), st.integers(0, 255))
def test_batches_with_a_replaced_byte_stay_within_bounds(frame: int, at: int, byte: int) -> None:
    frames: list[Any] = [bytearray(part) for part in wire(Evaluate(9, batch()))]
    frames[frame][at % len(frames[frame])] = byte
    try:
        message = decode_request([memoryview(bytes(part)) for part in frames])
    except RemoteError:
        return
    if isinstance(message, Evaluate):
        received = message.batch
        assert received.move_offsets[-1] == len(received.moves)
        assert (np.diff(received.move_offsets.astype(np.int64)) >= 0).all()
        assert (received.moves < POLICY_SIZE).all()
        assert np.isfinite(received.positions["rule50"]).all()

# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert messages to ZeroMQ frames and back.

Frame 0 is a msgpack map with `type`, `id` and the message's fields. `evaluate` and `result` carry their
arrays in further frames, raw and little-endian. The decoder trusts nothing: it checks every length, count,
index and size, and raises BadRequest (TooLarge for too many positions) that names the field. It ignores
unknown fields, so that later versions can add some.

Decoded arrays are read-only views of the frames, copied only if the frame's memory is unaligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias, cast

import msgpack
import numpy as np
from numpy.typing import NDArray

from protocol._core import plain_evaluate, plain_result
from protocol.batch import MAX_LEGAL_MOVES, POLICY_SIZE, POSITION_DTYPE, EvaluationBatch, PositionBatch
from protocol.errors import BadRequest, TooLarge
from protocol.wire import messages
from protocol.wire.compression import ZSTD, Compressor, content, content_size
from protocol.wire.fields import read, text, whole

Frame: TypeAlias = "bytes | NDArray[Any]"
"""One frame of a multipart message to send."""

Received: TypeAlias = Any
"""One received frame: bytes, a memoryview of bytes or a zmq.Frame."""

MAX_REQUEST_HEADER = 64 * 1024
"""Maximum bytes of a request's frame 0; paths are its longest fields."""

MAX_REPLY_HEADER = 4 * 1024 * 1024
"""Maximum bytes of a reply's frame 0; metrics are its longest field."""

SHARED_BUFFER = 8192
"""Bytes of ZeroMQ's receive buffer. A larger frame has memory of its own."""

_pack: Callable[[dict[str, Any]], bytes] = msgpack.Packer().pack
"""One packer for all headers: creating one takes longer than using it."""

_TEXT = frozenset([str])

_ARRAYS_AND_HEADER = 4
"""Number of frames of an evaluate and of a result."""

_OFFSET = np.dtype("<u4")
_MOVE = np.dtype("<u2")
_FLOAT = np.dtype("<f4")

_TYPE = text(64)
_COUNT = whole(1)
"""A count above WIRE_MAX_POSITIONS raises TooLarge, not BadRequest."""


def max_message_bytes(max_positions: int) -> int:
    """Return the largest frame of a valid request with that many positions, the limit to set on a socket."""
    return max(MAX_REQUEST_HEADER, max_positions * POSITION_DTYPE.itemsize)


def max_request_bytes(max_positions: int) -> int:
    """Return the total bytes of the largest request with that many positions."""
    of_each = POSITION_DTYPE.itemsize + _OFFSET.itemsize + MAX_LEGAL_MOVES * _MOVE.itemsize
    return MAX_REQUEST_HEADER + _OFFSET.itemsize + max_positions * of_each


def encode(message: messages.Request | messages.Reply) -> list[Frame]:
    """Return the frames of a message. Arrays are not copied."""
    if isinstance(message, messages.Evaluate):
        return encode_evaluate(
            message.id,
            message.batch,
            message.priority,
            message.deadline_ms,
            message.network,
            target_ms=message.target_ms,
        )
    if isinstance(message, messages.Result):
        return encode_result(
            message.id,
            message.evaluation,
            message.queue_ms,
            message.compute_ms,
            message.batch,
            message.instance,
            message.network,
        )
    header = {"type": messages.TYPES[type(message)], **asdict(message)}
    return [_pack(header)]


def encode_evaluate(
    identity: int,
    batch: PositionBatch,
    priority: messages.Priority,
    deadline_ms: float | None,
    network: str,
    compressor: Compressor | None = None,
    target_ms: float | None = None,
) -> list[Frame]:
    """Return the frames of an Evaluate: header, positions, move offsets, moves.
    With a compressor: the header, and all three arrays in one frame."""
    header: dict[str, Any] = {
        "type": "evaluate",
        "id": identity,
        "count": len(batch.positions),
        "class": priority,
    }
    if network:
        header["network"] = network
    if deadline_ms is not None:
        header["deadline_ms"] = deadline_ms
    if target_ms is not None:
        header["target_ms"] = target_ms
    arrays = batch.positions, batch.move_offsets, batch.moves
    if compressor is not None:
        header["compression"] = ZSTD
        return [_pack(header), compressor.compressed(arrays)]
    return [_pack(header), *arrays]


def encode_result(
    identity: int,
    evaluation: EvaluationBatch,
    queue_ms: float,
    compute_ms: float,
    batch: int,
    instance: str = "",
    network: str = "",
) -> list[Frame]:
    """Return the frames of a Result: header, logits, wdl, moves left."""
    header: dict[str, Any] = {
        "type": "result",
        "id": identity,
        "queue_ms": queue_ms,
        "compute_ms": compute_ms,
        "batch": batch,
    }
    if instance:
        header["instance"] = instance
    if network:
        header["network"] = network
    return [_pack(header), evaluation.logits, evaluation.wdl, evaluation.moves_left]


def peek_id(frames: Sequence[Any]) -> int:
    """Return the id of a possibly invalid message, for the error that answers it; 0 if it has none."""
    try:
        value = _header(frames, MAX_REQUEST_HEADER).get("id")
    except BadRequest:
        return 0
    return value if type(value) is int and 0 < value < 2**63 else 0


def decode_request(
    frames: Sequence[Received],
    max_positions: int = messages.WIRE_MAX_POSITIONS,
    check: Callable[[PositionBatch], None] | None = None,
) -> messages.Request:
    """Return the request that a client sent. check: validates the batch (default: check_batch).

    Raises BadRequest if the message breaks the protocol, TooLarge for more than max_positions positions.
    """
    if len(frames) == _ARRAYS_AND_HEADER:
        plain = plain_evaluate(frames)
        if plain is None:
            frames = _aligned(frames)
            plain = plain_evaluate(frames)
        if plain is not None and plain[1] <= max_positions and plain[2] in messages.PRIORITIES:
            identity, _, priority, network, deadline_ms, target_ms = plain
            batch = PositionBatch(
                np.frombuffer(frames[1], POSITION_DTYPE),
                np.frombuffer(frames[2], _OFFSET),
                np.frombuffer(frames[3], _MOVE),
            )
            (check or check_batch)(batch)
            return messages.Evaluate(
                identity, batch, cast(messages.Priority, priority), deadline_ms, network, target_ms
            )
    header = _header(frames, MAX_REQUEST_HEADER)
    kind = _TYPE.read(header, "type")
    if kind == "evaluate":
        return _decode_evaluate(header, frames, max_positions, check or check_batch)
    if kind not in messages.REQUESTS:
        raise BadRequest(
            f"unknown message type {kind!r}; this evaluator knows {', '.join(messages.REQUESTS)}"
        )
    _expect_frames(frames, 1, kind)
    request: messages.Request = messages.REQUESTS[kind](**read(messages.REQUESTS[kind], header))
    return request


def decode_reply(frames: Sequence[Received]) -> messages.Reply:
    """Return the reply that an evaluator sent. Raises BadRequest if the message breaks the protocol."""
    if len(frames) == _ARRAYS_AND_HEADER:
        plain = plain_result(frames)
        if plain is None:
            frames = _aligned(frames)
            plain = plain_result(frames)
        if plain is not None:
            identity, queue_ms, compute_ms, size, instance, network = plain
            evaluation = EvaluationBatch(
                np.frombuffer(frames[1], _FLOAT),
                np.frombuffer(frames[2], _FLOAT).reshape(-1, 3),
                np.frombuffer(frames[3], _FLOAT),
            )
            return messages.Result(identity, evaluation, queue_ms, compute_ms, size, instance, network)
    header = _header(frames, MAX_REPLY_HEADER)
    kind = _TYPE.read(header, "type")
    if kind == "result":
        return _decode_result(header, frames)
    if kind not in messages.REPLIES:
        raise BadRequest(f"unknown reply type {kind!r}")
    _expect_frames(frames, 1, kind)
    reply: messages.Reply = messages.REPLIES[kind](**read(messages.REPLIES[kind], header))
    return reply


def check_batch(batch: PositionBatch) -> None:
    """Check the invariants of a PositionBatch beyond its dtypes, in about 15 µs for 256 positions.

    Raises BadRequest that names the field.
    """
    positions, offsets, moves = batch.positions, batch.move_offsets, batch.moves
    if len(offsets) != len(positions) + 1:
        raise BadRequest(f"move_offsets: {len(offsets)} entries, expected count + 1 = {len(positions) + 1}")
    if offsets[0] != 0 or offsets[-1] != len(moves):
        raise BadRequest(f"move_offsets: must run from 0 to the number of moves, {len(moves)}")
    # A descending offset wraps around to a huge unsigned number, so one comparison finds both faults.
    counts = offsets[1:] - offsets[:-1]
    if np.maximum.reduce(counts) > MAX_LEGAL_MOVES:
        raise BadRequest(f"move_offsets: must ascend by at most {MAX_LEGAL_MOVES} moves per position")
    if len(moves) and np.maximum.reduce(moves) >= POLICY_SIZE:
        raise BadRequest(f"moves: policy index {int(moves.max())} is not below {POLICY_SIZE}")
    if not np.isfinite(positions["rule50"]).all():
        raise BadRequest("positions: rule50 must be a finite number")
    if np.bitwise_or.reduce(positions["reserved"]):
        raise BadRequest("positions: the reserved bytes of a record must be zero")


def _header(frames: Sequence[Any], limit: int) -> dict[str, Any]:
    if not frames:
        raise BadRequest("empty message")
    head = frames[0]
    size = len(head)
    if size > limit:
        raise BadRequest(f"header of {size} bytes, at most {limit} are allowed")
    try:
        header = msgpack.unpackb(
            head,
            raw=False,
            strict_map_key=True,
            max_str_len=32768,
            max_bin_len=0,
            max_array_len=65536,
            max_map_len=65536,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadRequest(f"header is not valid msgpack: {str(error)[:200]}") from None
    if not isinstance(header, dict) or not _TEXT.issuperset(map(type, header)):
        raise BadRequest("header must be a msgpack map with text keys")
    return header


def _aligned(frames: Sequence[Received]) -> list[Received]:
    """Return the frames, those copied that ZeroMQ may return at any offset of its receive buffer."""
    return [bytes(frame) if len(frame) <= SHARED_BUFFER else frame for frame in frames]


def _expect_frames(frames: Sequence[Any], count: int, kind: str) -> None:
    if len(frames) != count:
        raise BadRequest(f"{kind}: {len(frames)} frames, expected {count}")


def _array(frame: Received, dtype: np.dtype[Any], count: int, name: str) -> NDArray[Any]:
    size = len(frame)
    if size != count * dtype.itemsize:
        raise BadRequest(f"{name}: {size} bytes, expected {count * dtype.itemsize} ({count} entries)")
    array = np.frombuffer(frame, dtype)
    return array if array.flags.aligned else array.copy()


def _free_array(frame: Received, dtype: np.dtype[Any], most: int, name: str) -> NDArray[Any]:
    size = len(frame)
    if size % dtype.itemsize or size > most * dtype.itemsize:
        raise BadRequest(f"{name}: {size} bytes, expected a multiple of {dtype.itemsize} for at most {most}")
    return _array(frame, dtype, size // dtype.itemsize, name)


def _decode_evaluate(
    header: dict[str, Any],
    frames: Sequence[Received],
    max_positions: int,
    check: Callable[[PositionBatch], None],
) -> messages.Evaluate:
    compressed = len(frames) == 2
    if not compressed:
        _expect_frames(frames, 4, "evaluate")
    count = _COUNT.read(header, "count")
    if count > max_positions:
        raise TooLarge(f"{count} positions in one request, this evaluator takes at most {max_positions}")
    fields = read(messages.Evaluate, header)
    if compressed:
        frames = _decompressed(header, frames, count)
    batch = PositionBatch(
        positions=_array(frames[1], POSITION_DTYPE, count, "positions"),
        move_offsets=_array(frames[2], _OFFSET, count + 1, "move_offsets"),
        moves=_free_array(frames[3], _MOVE, count * MAX_LEGAL_MOVES, "moves"),
    )
    check(batch)
    return messages.Evaluate(batch=batch, **fields)


def _decompressed(header: dict[str, Any], frames: Sequence[Received], count: int) -> list[Received]:
    """Return the uncompressed frames of a compressed evaluate.
    Checks the declared size against the count before it decompresses."""
    if header.get("compression") != ZSTD:
        raise BadRequest(f"evaluate: 2 frames, expected 4, or 2 with compression {ZSTD!r}")
    positions, offsets = count * POSITION_DTYPE.itemsize, (count + 1) * _OFFSET.itemsize
    most = positions + offsets + count * MAX_LEGAL_MOVES * _MOVE.itemsize
    size = content_size(frames[1])
    if not positions + offsets <= size <= most:
        raise BadRequest(
            f"compression: a content of {size} bytes, expected {positions + offsets} and 2 for each move"
        )
    joined = memoryview(content(frames[1], size))
    parts = joined[:positions], joined[positions : positions + offsets], joined[positions + offsets :]
    return [frames[0], *parts]


def _decode_result(header: dict[str, Any], frames: Sequence[Received]) -> messages.Result:
    _expect_frames(frames, 4, "result")
    moves_left = _free_array(frames[3], _FLOAT, messages.WIRE_MAX_POSITIONS, "moves_left")
    count = len(moves_left)
    evaluation = EvaluationBatch(
        logits=_free_array(frames[1], _FLOAT, count * MAX_LEGAL_MOVES, "logits"),
        wdl=_array(frames[2], _FLOAT, count * 3, "wdl").reshape(count, 3),
        moves_left=moves_left,
    )
    return messages.Result(evaluation=evaluation, **read(messages.Result, header))

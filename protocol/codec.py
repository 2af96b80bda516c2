# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages to ZeroMQ frames and back.

Frame 0 is a msgpack map with `type`, `id` and the message's fields; `evaluate` and `result` carry their
arrays in further frames, raw and little-endian. Nothing from the wire is trusted: every length, count,
index and size is checked before use, and whatever does not fit raises BadRequest (TooLarge for too many
positions) with a message that names the field. Unknown fields of the map are ignored, so that later
versions can add some.

Decoded arrays are read-only views of the frames, not copies (unless the frame's memory is unaligned).
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
from protocol.compression import ZSTD, Compressor, content, content_size
from protocol.errors import BadRequest, TooLarge
from protocol.fields import read, text, whole
from protocol.messages import (
    PRIORITIES,
    REPLIES,
    REQUESTS,
    TYPES,
    WIRE_MAX_POSITIONS,
    Evaluate,
    Priority,
    Reply,
    Request,
    Result,
)

Frame: TypeAlias = "bytes | NDArray[Any]"
"""One part of a multipart message, as it is sent."""

Received: TypeAlias = Any
"""One as it was received: bytes, a memoryview of bytes or a zmq.Frame."""

MAX_REQUEST_HEADER = 64 * 1024
"""Bytes of a request's frame 0; paths are the longest thing in it."""

MAX_REPLY_HEADER = 4 * 1024 * 1024
"""Bytes of a reply's frame 0; metrics are the longest thing in it."""

_pack: Callable[[dict[str, Any]], bytes] = msgpack.Packer().pack
"""One packer for all headers: to make one takes longer than to use it."""

_TEXT = frozenset([str])

_ARRAYS_AND_HEADER = 4
"""Frames of an evaluate and of a result."""

_OFFSET = np.dtype("<u4")
_MOVE = np.dtype("<u2")
_FLOAT = np.dtype("<f4")

_TYPE = text(64)
_COUNT = whole(1)
"""Beyond WIRE_MAX_POSITIONS it is TooLarge, not invalid."""


def max_message_bytes(max_positions: int) -> int:
    """The largest frame of an honest request with that many positions: the limit to set on a socket."""
    return max(MAX_REQUEST_HEADER, max_positions * POSITION_DTYPE.itemsize)


def max_request_bytes(max_positions: int) -> int:
    """All frames of the largest request with that many positions together."""
    of_each = POSITION_DTYPE.itemsize + _OFFSET.itemsize + MAX_LEGAL_MOVES * _MOVE.itemsize
    return MAX_REQUEST_HEADER + _OFFSET.itemsize + max_positions * of_each


def encode(message: Request | Reply) -> list[Frame]:
    """The frames of a message. Arrays are passed on without a copy."""
    if isinstance(message, Evaluate):
        return encode_evaluate(
            message.id, message.batch, message.priority, message.deadline_ms, message.network
        )
    if isinstance(message, Result):
        return encode_result(
            message.id,
            message.evaluation,
            message.queue_ms,
            message.compute_ms,
            message.batch,
            message.instance,
            message.network,
        )
    header = {"type": TYPES[type(message)], **asdict(message)}
    return [_pack(header)]


def encode_evaluate(
    identity: int,
    batch: PositionBatch,
    priority: Priority,
    deadline_ms: float | None,
    network: str,
    compressor: Compressor | None = None,
) -> list[Frame]:
    """Frames of an Evaluate with these fields: header, positions, move offsets, moves; with a compressor the
    header and all three in one."""
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
    """Frames of a Result with these fields: header, logits, wdl, moves left."""
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
    """The id of a message that may be broken, for the error that answers it; 0 where there is none."""
    try:
        value = _header(frames, MAX_REQUEST_HEADER).get("id")
    except BadRequest:
        return 0
    return value if type(value) is int and 0 < value < 2**63 else 0


def decode_request(
    frames: Sequence[Received],
    max_positions: int = WIRE_MAX_POSITIONS,
    check: Callable[[PositionBatch], None] | None = None,
) -> Request:
    """What a client sent. check: does what `check_batch` does, which is taken if it is None.

    Raises BadRequest when the message breaks the protocol, TooLarge for more than max_positions positions.
    """
    if len(frames) == _ARRAYS_AND_HEADER:
        plain = plain_evaluate(frames)
        if plain is not None and plain[1] <= max_positions and plain[2] in PRIORITIES:
            return _plain_evaluate(plain, frames, check or check_batch)
    header = _header(frames, MAX_REQUEST_HEADER)
    kind = _TYPE.read(header, "type")
    if kind == "evaluate":
        return _decode_evaluate(header, frames, max_positions, check or check_batch)
    if kind not in REQUESTS:
        raise BadRequest(f"unknown message type {kind!r}; this evaluator knows {', '.join(REQUESTS)}")
    _expect_frames(frames, 1, kind)
    request: Request = REQUESTS[kind](**read(REQUESTS[kind], header))
    return request


def decode_reply(frames: Sequence[Received]) -> Reply:
    """What an evaluator sent. Raises BadRequest when the message breaks the protocol."""
    if len(frames) == _ARRAYS_AND_HEADER:
        plain = plain_result(frames)
        if plain is not None:
            return _plain_result(plain, frames)
    header = _header(frames, MAX_REPLY_HEADER)
    kind = _TYPE.read(header, "type")
    if kind == "result":
        return _decode_result(header, frames)
    if kind not in REPLIES:
        raise BadRequest(f"unknown reply type {kind!r}")
    _expect_frames(frames, 1, kind)
    reply: Reply = REPLIES[kind](**read(REPLIES[kind], header))
    return reply


def check_batch(batch: PositionBatch) -> None:
    """Check what a PositionBatch promises beyond its dtypes; raises BadRequest naming the field.

    Costs some 15 µs for 256 positions.
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


def _expect_frames(frames: Sequence[Any], count: int, kind: str) -> None:
    if len(frames) != count:
        raise BadRequest(f"{kind}: {len(frames)} frames, expected {count}")


def _array(frame: Received, dtype: np.dtype[Any], count: int, name: str) -> NDArray[Any]:
    size = len(frame)
    if size != count * dtype.itemsize:
        raise BadRequest(f"{name}: {size} bytes, expected {count * dtype.itemsize} ({count} entries)")
    array = np.frombuffer(frame, dtype)
    # ZeroMQ hands out small frames wherever they lie in its receive buffer.
    return array if array.flags.aligned else array.copy()


def _free_array(frame: Received, dtype: np.dtype[Any], most: int, name: str) -> NDArray[Any]:
    size = len(frame)
    if size % dtype.itemsize or size > most * dtype.itemsize:
        raise BadRequest(f"{name}: {size} bytes, expected a multiple of {dtype.itemsize} for at most {most}")
    return _array(frame, dtype, size // dtype.itemsize, name)


def _plain_evaluate(
    plain: tuple[int, int, str, str, float | None],
    frames: Sequence[Received],
    check: Callable[[PositionBatch], None],
) -> Evaluate:
    """What `_decode_evaluate` would make of a message of which the core has seen the rest."""
    identity, _, priority, network, deadline_ms = plain
    batch = PositionBatch(
        np.frombuffer(frames[1], POSITION_DTYPE),
        np.frombuffer(frames[2], _OFFSET),
        np.frombuffer(frames[3], _MOVE),
    )
    check(batch)
    return Evaluate(identity, batch, cast(Priority, priority), deadline_ms, network)


def _plain_result(plain: tuple[int, float, float, int, str, str], frames: Sequence[Received]) -> Result:
    """What `_decode_result` would make of it."""
    identity, queue_ms, compute_ms, batch, instance, network = plain
    evaluation = EvaluationBatch(
        np.frombuffer(frames[1], _FLOAT),
        np.frombuffer(frames[2], _FLOAT).reshape(-1, 3),
        np.frombuffer(frames[3], _FLOAT),
    )
    return Result(identity, evaluation, queue_ms, compute_ms, batch, instance, network)


def _decode_evaluate(
    header: dict[str, Any],
    frames: Sequence[Received],
    max_positions: int,
    check: Callable[[PositionBatch], None],
) -> Evaluate:
    compressed = len(frames) == 2
    if not compressed:
        _expect_frames(frames, 4, "evaluate")
    count = _COUNT.read(header, "count")
    if count > max_positions:
        raise TooLarge(f"{count} positions in one request, this evaluator takes at most {max_positions}")
    fields = read(Evaluate, header)
    if compressed:
        frames = _decompressed(header, frames, count)
    batch = PositionBatch(
        positions=_array(frames[1], POSITION_DTYPE, count, "positions"),
        move_offsets=_array(frames[2], _OFFSET, count + 1, "move_offsets"),
        moves=_free_array(frames[3], _MOVE, count * MAX_LEGAL_MOVES, "moves"),
    )
    check(batch)
    return Evaluate(batch=batch, **fields)


def _decompressed(header: dict[str, Any], frames: Sequence[Received], count: int) -> list[Received]:
    """The frames of a compressed evaluate as they would be without. Nothing is decompressed that is not of a
    possible size."""
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


def _decode_result(header: dict[str, Any], frames: Sequence[Received]) -> Result:
    _expect_frames(frames, 4, "result")
    moves_left = _free_array(frames[3], _FLOAT, WIRE_MAX_POSITIONS, "moves_left")
    count = len(moves_left)
    evaluation = EvaluationBatch(
        logits=_free_array(frames[1], _FLOAT, count * MAX_LEGAL_MOVES, "logits"),
        wdl=_array(frames[2], _FLOAT, count * 3, "wdl").reshape(count, 3),
        moves_left=moves_left,
    )
    return Result(evaluation=evaluation, **read(Result, header))

# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts a `Layer` of the file to float32 and back: the four weight encodings."""

from __future__ import annotations

import numpy as np

from evaluator.network.chunks import by_blocks
from evaluator.network.errors import NetworkError
from evaluator.network.schema import Message, WeightsEncoding
from evaluator.network.spec import FloatArray

_STORED_TYPES = {
    WeightsEncoding.LINEAR16: "<u2",
    WeightsEncoding.FLOAT16: "<f2",
    WeightsEncoding.BFLOAT16: "<u2",
    WeightsEncoding.FLOAT32: "<f4",
}


def layer_encoding(layer: Message, name: str) -> WeightsEncoding:
    """Return the encoding of a Layer; LINEAR16 if the field is absent."""
    if not layer.HasField("encoding"):
        return WeightsEncoding.LINEAR16
    try:
        return WeightsEncoding(layer.encoding)
    except ValueError:
        raise NetworkError(
            f"{name}: unknown encoding {layer.encoding}; known are "
            + ", ".join(f"{e.value} {e.name}" for e in WeightsEncoding)
        ) from None


def decode_layer(layer: Message, name: str) -> FloatArray:
    """Return the values of a Layer, flat; an empty Layer gives an empty array.

    name: of the field, for errors. Raises NetworkError for an unknown encoding, a partial value at the end,
    and values that are not finite.
    """
    encoding = layer_encoding(layer, name)
    data: bytes = layer.params
    if len(data) % np.dtype(_STORED_TYPES[encoding]).itemsize:
        raise NetworkError(
            f"{name}: {len(data)} bytes are not a whole number of {encoding.name} values; the file is damaged"
        )
    low, high = np.float32(layer.min_val), np.float32(layer.max_val)
    if encoding is WeightsEncoding.LINEAR16 and not (np.isfinite(low) and np.isfinite(high)):
        raise NetworkError(f"{name}: its range {low} to {high} is not finite; the file is damaged")
    stored = np.frombuffer(data, _STORED_TYPES[encoding])
    values = np.empty(len(stored), np.float32)

    def decode(block: slice) -> int:
        """Return the number of non-finite values in the block."""
        out = values[block]
        with np.errstate(over="ignore", invalid="ignore"):
            match encoding:
                case WeightsEncoding.LINEAR16:
                    t = stored[block].astype(np.float32)
                    t /= np.float32(65535)
                    np.subtract(np.float32(1), t, out=out)
                    out *= low
                    t *= high
                    out += t
                case WeightsEncoding.BFLOAT16:
                    np.left_shift(stored[block], 16, out=out.view(np.uint32), dtype=np.uint32)
                case WeightsEncoding.FLOAT16 | WeightsEncoding.FLOAT32:
                    out[:] = stored[block]
        return 0 if np.isfinite(out).all() else int(np.count_nonzero(~np.isfinite(out)))

    bad = sum(by_blocks(len(stored), decode))
    if bad:
        raise NetworkError(f"{name}: {bad} of {len(values)} values are not finite; the file is damaged")
    return values


def encode_layer(layer: Message, values: FloatArray, encoding: WeightsEncoding) -> None:
    """Write values (any shape, row-major) into a Layer. LINEAR16 leaves `encoding` absent, as in older
    files."""
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    if encoding is not WeightsEncoding.LINEAR16:
        layer.encoding = int(encoding)
    match encoding:
        case WeightsEncoding.LINEAR16:
            low, high = (float(flat.min()), float(flat.max())) if flat.size else (0.0, 0.0)
            layer.min_val, layer.max_val = low, high
            span = high - low or 1.0
            t = np.rint((flat.astype(np.float64) - low) / span * 65535)
            layer.params = t.astype("<u2").tobytes()
        case WeightsEncoding.FLOAT16:
            layer.params = flat.astype("<f2").tobytes()
        case WeightsEncoding.BFLOAT16:
            bits = flat.view(np.uint32)
            rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even
            layer.params = (rounded >> 16).astype("<u2").tobytes()
        case WeightsEncoding.FLOAT32:
            layer.params = flat.astype("<f4").tobytes()

# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads lc0's training records of versions 3 to 7 as version 6.

All start with a version number. 3 and 4 lack the input format, which is classical. 3 to 5 have the result as
a signed byte, and 3 has no search values. 7 adds short-term values and the next two moves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.apps.shards import RECORD_DTYPE, TrainingDataError
from training.config import INPUT_FORMATS

NO_MOVE = 0xFFFF
"""played_idx and best_idx of versions without these fields."""

_FIELDS: tuple[str, ...] = RECORD_DTYPE.names or ()


def _fields(first: str, last: str) -> list[tuple[Any, ...]]:
    """Return the fields of version 6 from `first` to `last`, inclusive."""
    names = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    return [(name, RECORD_DTYPE[name]) for name in names]


# Before version 5 `invariance_info` is an unused move counter.
_POSITION = [*_fields("probabilities", "invariance_info"), ("result", "i1")]
_VALUES = _fields("root_q", "best_d")

RECORDS: dict[int, np.dtype[Any]] = {
    3: np.dtype([("version", "<u4"), *_POSITION]),
    4: np.dtype([("version", "<u4"), *_POSITION, *_VALUES]),
    5: np.dtype([*_fields("version", "input_format"), *_POSITION, *_fields("root_q", "plies_left")]),
    6: RECORD_DTYPE,
    7: np.dtype(
        [
            *_fields(_FIELDS[0], _FIELDS[-1]),
            ("d_st", "<f4"),
            ("opp_played_idx", "<u2"),
            ("next_played_idx", "<u2"),
            ("reserved", "<f4", (8,)),
        ]
    ),
}
"""Record layout by version: 8276, 8292, 8308, 8356 and 8396 bytes."""


_LIMITS = {
    "probabilities": (-1.0, 1.01),
    **dict.fromkeys(("root_q", "best_q", "played_q", "orig_q", "result_q"), (-1.01, 1.01)),
    **dict.fromkeys(("root_d", "best_d", "played_d", "orig_d", "result_d"), (-0.01, 1.01)),
    **dict.fromkeys(("root_m", "best_m", "played_m", "orig_m", "plies_left"), (-1.0, 1e6)),
}
"""Range of each float field; the others must only be finite."""

_MAY_BE_NAN = ("orig_q", "orig_d", "orig_m")
"""lc0 writes NaN if the network's evaluation is unknown."""


def _check_values(records: NDArray[np.void]) -> None:
    """Raise TrainingDataError for a number that is not finite or out of range."""
    for name in records.dtype.names or ():
        if records.dtype[name].base.kind != "f":
            continue
        values = records[name].reshape(len(records), -1)
        low, high = _LIMITS.get(name, (-np.finfo(np.float32).max, np.finfo(np.float32).max))
        right = (values >= low) & (values <= high)
        if name in _MAY_BE_NAN:
            right |= np.isnan(values)
        if not right.all():
            row, place = np.argwhere(~right)[0]
            raise TrainingDataError(
                f"record {row + 1}: {name} is {values[row, place]}, not in {low:g} to {high:g}"
            )


def _check_formats(records: NDArray[np.void]) -> None:
    """Raise TrainingDataError for unknown or mixed input formats."""
    formats = np.unique(records["input_format"])
    for number in formats.tolist():
        if str(number) not in INPUT_FORMATS:
            raise TrainingDataError(f"input format {number} is not one of {', '.join(INPUT_FORMATS)}")
    if len(formats) > 1:
        raise TrainingDataError(f"the records have several input formats: {formats.tolist()}")


def parse_records(data: bytes) -> NDArray[np.void]:
    """Return the records of a game as RECORD_DTYPE [n]. Fields that a version lacks are NaN or NO_MOVE.

    Raises TrainingDataError.
    """
    if len(data) < 4:
        raise TrainingDataError("no records")
    version = int.from_bytes(data[:4], "little")
    if version not in RECORDS:
        raise TrainingDataError(f"records of version {version}; 3 to 7 are understood")
    layout = RECORDS[version]
    if len(data) % layout.itemsize:
        raise TrainingDataError(
            f"{len(data):,} bytes are not a whole number of records of {layout.itemsize:,} bytes "
            f"(version {version})"
        )
    records = np.frombuffer(data, layout)
    if (records["version"] != version).any():
        raise TrainingDataError("records of several versions")
    _check_values(records)
    if "input_format" in (layout.names or ()):
        _check_formats(records)
    if version < 6 and (np.abs(records["result"]) > 1).any():
        raise TrainingDataError(f"result is {np.abs(records['result']).max()}, not -1, 0 or 1")
    if version == 6:
        return records
    read = np.zeros(len(records), RECORD_DTYPE)
    for name in _LIMITS.keys() - {"probabilities", "result_q", "result_d"}:
        read[name] = np.nan
    read["input_format"] = 1
    read["played_idx"] = read["best_idx"] = NO_MOVE
    for name in layout.names or ():
        if name in (RECORD_DTYPE.names or ()):
            read[name] = records[name]
    if version < 6:
        read["result_q"] = records["result"]
        read["result_d"] = records["result"] == 0
        read["best_idx"] = records["probabilities"].argmax(axis=1)
        read["visits"] = 1
    if version < 5:
        read["invariance_info"] = 0
    read["version"] = 6
    return read

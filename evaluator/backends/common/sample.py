# SPDX-License-Identifier: GPL-3.0-or-later
"""Real positions, included with the program, to measure a network's activations on and to check int8 with.

They come from labelled games (`scripts/sample_positions.py`). Half of the games began after random moves, and
a tenth with few men. A third of the positions are side variations, as a search visits them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evaluator.network.schema import InputFormat
from protocol.batch import POSITION_DTYPE, PositionBatch

FILE = Path(__file__).with_name("sample.npz")

POSITIONS = 384

SAME_PLANES = {
    InputFormat.CANONICAL_HECTOPLIES_ARMAGEDDON_112: InputFormat.CANONICAL_HECTOPLIES_112,
    InputFormat.CANONICAL_V2_ARMAGEDDON_112: InputFormat.CANONICAL_V2_112,
}
"""Formats that differ from another one only in Armageddon games."""


def sample_batch(form: InputFormat) -> PositionBatch:
    """Return 384 positions in a network's input format, with their legal moves."""
    key = SAME_PLANES.get(form, form).name
    with np.load(FILE) as file:
        planes, rule50 = file[f"{key}.planes"], file[f"{key}.rule50"]
        offsets, moves = file[f"{key}.move_offsets"], file[f"{key}.moves"]
    positions = np.zeros(len(planes), POSITION_DTYPE)
    positions["planes"], positions["rule50"] = planes, rule50
    return PositionBatch(positions, offsets, moves)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The random backend against its specification, computed with Python's own integers."""

import numpy as np

from evaluator.backends import open_backend
from evaluator.backends.common.probe import probe_batch
from protocol.batch import PositionBatch

G = 0x9E3779B97F4A7C15
MASK = 2**64 - 1

KNOWN_LOGITS = [0x3F080F4C, 0xBFCEC290, 0x3FE466EC]
KNOWN_WDL = [0x3F02A7E6, 0x3EF56BF1, 0x3C288880]
KNOWN_MOVES_LEFT = [0x4297A2C0]


def mix(x: int) -> int:
    x &= MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def uniform(x: int) -> np.float32:
    return np.float32(mix(x) >> 40) * np.float32(2.0**-24)


def position_hash(planes: list[int], rule50: np.float32) -> int:
    keys = [mix((plane + 1) * G) | 1 for plane in range(112)]
    bits = int(rule50.view(np.uint32))
    return mix(bits * 0xD6E8FEB86659FD93 + sum(a * b for a, b in zip(planes, keys, strict=True)))


def test_every_number_is_the_specified_one() -> None:
    batch = probe_batch(5, seed=9)
    result = open_backend("random", None).evaluate(batch)
    half, one = np.float32(0.5), np.float32(1)
    for i, position in enumerate(batch.positions):
        h = position_hash([int(mask) for mask in position["planes"]], position["rule50"])
        draw = half * uniform(h + 2)
        win = (one - draw) * uniform(h + 1)
        assert result.wdl[i].tolist() == [win, draw, (one - draw) - win]
        assert result.moves_left[i] == np.float32(20) + np.float32(100) * uniform(h + 3)
        start, end = batch.move_offsets[i : i + 2]
        for move, logit in zip(batch.moves[start:end], result.logits[start:end], strict=True):
            assert logit == np.float32(4) * uniform(h + G * (16 + int(move))) - np.float32(2)


def test_known_values() -> None:
    """Written down once, for the twin in the engine's core to be tested against."""
    batch = probe_batch(1)
    batch.positions["planes"] = np.arange(112, dtype=np.uint64)
    batch.positions["rule50"] = 7
    moves = np.array([0, 1, 1857], np.uint16)
    result = open_backend("random", None).evaluate(
        PositionBatch(batch.positions, np.array([0, 3], np.uint32), moves)
    )
    assert result.logits.view(np.uint32).tolist() == KNOWN_LOGITS
    assert result.wdl.view(np.uint32).tolist() == [KNOWN_WDL]
    assert result.moves_left.view(np.uint32).tolist() == KNOWN_MOVES_LEFT

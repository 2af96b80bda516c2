# SPDX-License-Identifier: GPL-3.0-or-later
"""Chunk files of training data, and the check of their records."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from engine.apps.shards.chunk import TrainingDataError, chunk_bytes
from engine.apps.shards.training_record import Records
from tests.engine.apps.selfplay.checking import check_file, check_records
from tests.engine.apps.selfplay.games import played_game

SEED = 4


@pytest.fixture(scope="module")
def canonical() -> Records:
    """A game that ends by the rules, in input format 3."""
    return played_game(3, seed=SEED)


def test_chunk_is_read_back(tmp_path: Path, canonical: Records) -> None:
    path = tmp_path / "game_000000.gz"
    path.write_bytes(chunk_bytes(canonical))
    assert gzip.decompress(path.read_bytes()) == canonical.tobytes()
    assert (check_file(path).records == canonical).all()


def test_chunk_has_the_same_bytes_for_the_same_game(canonical: Records) -> None:
    assert chunk_bytes(canonical) == chunk_bytes(canonical.copy())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("root_q", 1.5),
        ("result_q", 0.5),
        ("visits", 0),
        ("plies_left", 7.5),
        ("played_idx", 1857),
        ("rule50_count", 99),
        ("probabilities", 0.5),
    ],
)
def test_check_fails_for_a_wrong_field(canonical: Records, field: str, value: float) -> None:
    check_records(canonical)
    spoilt = canonical.copy()
    spoilt[field][5] = value
    with pytest.raises(AssertionError):
        check_records(spoilt)


@pytest.mark.parametrize("plane", [0, 11, 13 * 3, 13 * 7 + 5])
def test_check_fails_for_a_wrong_plane(plane: int) -> None:
    spoilt = played_game(1, seed=SEED)
    spoilt["planes"][12, plane] ^= np.uint64(1 << 20)
    with pytest.raises((AssertionError, TrainingDataError, ValueError)):
        check_records(spoilt)

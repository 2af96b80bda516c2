# SPDX-License-Identifier: GPL-3.0-or-later
"""Chunk files of training data, and the check of their records."""

import gzip
from pathlib import Path

import pytest

from engine.apps.shards.chunk import chunk_bytes
from engine.apps.shards.training_record import Records
from tests.engine.apps.selfplay.checking import check_file
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

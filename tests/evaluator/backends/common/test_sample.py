# SPDX-License-Identifier: GPL-3.0-or-later
"""How the shipped positions are made from shards, and read again."""

import runpy
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from engine.apps.shards.shard import write_shard
from evaluator.backends.common import sample
from evaluator.network.schema import InputFormat
from tests.paths import REPOSITORY
from tests.training.labels import labelled_shard

SCRIPT = REPOSITORY / "scripts" / "sample_positions.py"


def test_the_script_writes_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    shards = [tmp_path / f"{number}.shard" for number in range(3)]
    for number, path in enumerate(shards):
        write_shard(path, labelled_shard(games=20, plies=40, seed=number + 1))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, shards)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    made = tmp_path / "made.npz"
    made.write_bytes(capsysbinary.readouterr().out)
    monkeypatch.setattr(sample, "FILE", made)
    games = runpy.run_path(str(SCRIPT))["sampled"](shards, seed=1)
    batch = sample.sample_batch(InputFormat.CLASSICAL_112)
    assert len(batch) == len(games) == sample.POSITIONS
    counts = [end - start for start, end in pairwise(batch.move_offsets.tolist())]
    assert counts == [len(game.legal_moves()) for game in games]
    other = sample.sample_batch(InputFormat.CANONICAL_V2_112)
    assert np.array_equal(other.move_offsets, batch.move_offsets)
    assert (other.positions != batch.positions).any()

# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of labelled games become shards; those that are damaged, or whose moves are illegal, are named."""

import io
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.apps.shards.shard import read_shard
from tests.training.labels import labelled_shard
from tests.training.run.runs import run_training
from training.data.importing import import_sources
from training.data.labelled_games import without_repeats
from training.data.reading import shards_of


def archive(path: Path, *, deep: bool, **changed: NDArray[Any]) -> Path:
    """The archive of a few random games, of either form."""
    columns = labelled_shard(5, 30).columns
    given: dict[str, Any] = {
        "fens": np.bytes_(columns["fens"].tobytes()),
        "lens": columns["plies"],
        "results": columns["results"],
        "played": columns["moves"],
        "pv_moves": columns["lines"],
        "pv_cp": columns["lines_cp"],
    }
    if deep:
        names = {"lines": "pv_moves", "lines_cp": "pv_cp"}
        for name, column in columns.items():
            if name.startswith(("branch_", "best")):
                part = name.removeprefix("branch_")
                given[name if part not in names else f"branch_{names[part]}"] = column
    file = io.BytesIO()
    np.savez(file, **(given | changed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(file.getvalue()))
    return path


def test_both_forms_become_shards(tmp_path: Path) -> None:
    for deep in (False, True):
        source = archive(tmp_path / f"{deep}.npz.xz", deep=deep)
        imported = import_sources([str(source)], str(tmp_path / f"out-{deep}"))
        assert imported.broken == {}
        expected = labelled_shard(5, 30)
        shard = read_shard(shards_of([tmp_path / f"out-{deep}"])[0])
        for name, column in expected.columns.items():
            if deep or not name.startswith("branch_"):
                assert np.array_equal(shard.columns[name], column), name
        assert shard.branches == (expected.branches if deep else 0)


def test_import_names_damaged_games_and_keeps_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    good = archive(folder / "a.npz.xz", deep=True)
    (folder / "cut.npz.xz").write_bytes(good.read_bytes()[:-30])
    (folder / "text.npz.xz").write_bytes(b"no archive")
    archive(folder / "short.npz.xz", deep=True, best=np.zeros(3, np.uint16))
    archive(folder / "illegal.npz.xz", deep=True, played=np.full(150, 28 | 12 << 6, np.uint16))
    done = run_training("import", folder, "--output", tmp_path / "out", "--json", status=1)
    imported = json.loads(done.stdout)
    assert imported["shards"] == 1
    names = ("cut", "illegal", "short", "text")
    assert all(f"{name}.npz.xz: " in done.stderr for name in names)
    assert sorted(imported["broken"]) == [str(folder / f"{name}.npz.xz") for name in names]
    assert "position 0: the move e4e2 is not legal" in imported["broken"][str(folder / "illegal.npz.xz")]
    assert "best has 3 entries" in imported["broken"][str(folder / "short.npz.xz")]

    again = run_training("stats", tmp_path / "out", "--json")
    assert json.loads(again.stdout)["games"] == 5


def test_a_line_whose_move_an_earlier_one_has_is_omitted() -> None:
    moves = np.array([[5, 5], [6, 5], [5, 7]], np.uint16)
    scores = np.array([[50, 50], [40, 45], [30, 35]], np.int16)
    kept, kept_scores = without_repeats(moves, scores)
    assert kept.tolist() == [[5, 5], [6, 0], [0, 7]]
    assert kept_scores.tolist() == [[50, 50], [40, 0], [0, 35]]

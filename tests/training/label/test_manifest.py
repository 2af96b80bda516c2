# SPDX-License-Identifier: GPL-3.0-or-later
"""A manifest makes the same labelled games again, or says what differs."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.apps.shards.shard import read_shard
from tests.paths import REPOSITORY
from tests.training.labels import labelled_shard, move_value
from tests.training.run.runs import run_training
from training.config import DataSettings, TargetSettings
from training.data.reading import shards_of, table_of
from training.data.replay import games_at
from training.label.manifest import MadeGames, digest_of, read_manifest

pytestmark = pytest.mark.integration

SCRIPTED = f"{sys.executable} -m tests.training.label.scripted_engine"
STOCKFISH = shutil.which("stockfish") or shutil.which("/usr/games/stockfish")


def write_manifest(folder: Path, **settings: object) -> Path:
    path = folder / "set.toml"
    settings = {"games": 8, "max_plies": 20} | settings
    path.write_text("[run]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()), "utf-8")
    return path


def make(manifest: Path, output: Path, engine: str, *flags: object, status: int = 0) -> str:
    """Run `label` with a manifest; return what was said."""
    done = run_training(
        *("label", "--manifest", manifest, "--engine", engine, "--output", output, "--json"),
        *flags,
        status=status,
    )
    return done.stderr


def made(manifest: Path) -> MadeGames:
    found = read_manifest(manifest).made
    assert found is not None
    return found


@pytest.mark.parametrize("play_nodes", [0, 100])
def test_manifest_gives_the_same_digest_with_one_and_two_engines(tmp_path: Path, play_nodes: int) -> None:
    manifest = write_manifest(tmp_path, play_nodes=play_nodes)
    engine = f"{SCRIPTED} remember {manifest}"  # The marker exists, so it does not fail.
    assert "the digest is in" in make(manifest, tmp_path / "one", engine, "--workers", 1)
    assert made(manifest).engine == "scripted"
    assert made(manifest).games == 8
    assert made(manifest).digest in make(manifest, tmp_path / "two", engine, "--workers", 2)


def test_manifest_digest_is_the_same_when_an_engine_died(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path)
    make(manifest, tmp_path / "one", f"{SCRIPTED} remember {manifest}", "--workers", 1)
    marker = tmp_path / "died"
    said = make(manifest, tmp_path / "two", f"{SCRIPTED} remember {marker}", "--workers", 1)
    assert marker.exists()
    assert "an engine is replaced: " in said
    assert made(manifest).digest in said


@pytest.mark.skipif(STOCKFISH is None, reason="needs Stockfish")
@pytest.mark.parametrize("play_nodes", [0, 150])
def test_manifest_gives_the_same_digest_with_stockfish(tmp_path: Path, play_nodes: int) -> None:
    assert STOCKFISH is not None
    manifest = write_manifest(tmp_path, nodes=600, play_nodes=play_nodes)
    make(manifest, tmp_path / "one", STOCKFISH, "--workers", 1)
    assert made(manifest).engine.startswith("Stockfish")
    assert made(manifest).digest in make(manifest, tmp_path / "two", STOCKFISH, "--workers", 2)


def test_manifest_checks_a_finished_folder_without_an_engine(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path)
    make(manifest, tmp_path / "out", SCRIPTED)
    assert "is what" in make(manifest, tmp_path / "out", "/no/engine")
    text = manifest.read_text("utf-8")
    manifest.write_text(text.replace(made(manifest).digest, "sha256 0"), "utf-8")
    said = make(manifest, tmp_path / "out", "/no/engine", status=1)
    assert f"differs from {manifest}: digest is sha256 " in said


def test_manifest_rejects_another_engine_and_other_settings(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path)
    make(manifest, tmp_path / "out", SCRIPTED)
    manifest.write_text(manifest.read_text("utf-8").replace("scripted", "other"), "utf-8")
    said = make(manifest, tmp_path / "new", SCRIPTED, status=1)
    assert "the engine is 'scripted', but" in said
    assert "nodes: 4000 then, 9 now" in make(manifest, tmp_path / "new", SCRIPTED, "--nodes", 9, status=2)
    write_manifest(tmp_path, games=0)
    assert "the number of games" in make(manifest, tmp_path / "new", SCRIPTED, status=2)
    write_manifest(tmp_path, branch_network='"wavefront-cpu"')
    assert "not repeatable" in make(manifest, tmp_path / "new", SCRIPTED, status=2)


def test_digest_depends_on_numbers_not_on_order_and_shards() -> None:
    one, two = labelled_shard(3, 20, seed=1), labelled_shard(2, 20, seed=2)
    digest = digest_of([one, two])
    assert digest == digest_of([two, one])
    for name in ("moves", "results", "best_cp", "lines_cp", "branch_move", "branch_best_cp", "branch_at"):
        column = one.columns[name].copy()
        column.reshape(-1)[0] += 1
        assert digest_of([replace(one, columns={**one.columns, name: column}), two]) != digest, name


def test_play_nodes_keeps_one_position_of_each_game(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, play_nodes=100, branches=1.0)
    make(manifest, tmp_path / "out", SCRIPTED)
    (path,) = shards_of([tmp_path / "out"])
    shard = read_shard(path)
    assert shard.games == shard.positions == 8
    assert shard.branches == 8
    assert (shard.columns["plies"] == shard.columns["prefix"] + 1).all()
    assert len(set(shard.columns["prefix"].tolist())) > 1
    for row, game in games_at(shard, range(16)):
        best = max(game.legal_moves(), key=lambda move: (move_value(move), move))
        label = "best" if row < 8 else "branch_best"
        assert move_value(best) == shard.columns[f"{label}_cp"][row % 8]
    table = table_of(shard, DataSettings(), TargetSettings(), input_format=1)
    assert len(table) == 16
    assert np.isnan(table.plies_left).all()


def test_the_included_manifest_has_its_digest() -> None:
    for path in (REPOSITORY / "training" / "manifests").glob("*.toml"):
        assert made(path).digest.startswith("sha256 ")

# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels from tablebases agree with results that another program read from the same tables."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from engine._core import Game, Tablebases
from engine.apps.shards.move_codes import uci_move
from engine.apps.shards.shard import read_shard
from tests.paths import DATA, TABLES
from tests.training.run.runs import run_training
from training.config import DataSettings, TargetSettings
from training.data.reading import shards_of, table_of
from training.label.exact import exact_label
from training.label.lines import MATE

SCRIPTED = f"{sys.executable} -m tests.training.label.scripted_engine"


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


def test_exact_label_keeps_the_result_and_makes_progress() -> None:
    tables = Tablebases([TABLES])
    for text in (DATA / "syzygy" / "probes.jsonl").read_text("utf-8").splitlines():
        known = json.loads(text)
        game = Game(known["fen"])
        label = exact_label(game, tables, 5)
        assert label is not None
        assert label.exact
        assert sign(label.cp) == sign(known["wdl"]), text
        assert label.lines[0] == (label.best, label.cp)
        for move, score in label.lines:
            assert sign(score) == sign(known["moves"][uci_move(move)]), text
        if label.cp:  # The tables' distances may be one too small.
            assert abs(MATE - abs(label.cp) - 1 - abs(known["dtz"])) <= 1, text
        assert exact_label(game, tables, 5) == label


def test_exact_label_prefers_mate_and_counts_the_clock() -> None:
    tables = Tablebases([TABLES])
    mate = exact_label(Game("7k/8/6K1/8/8/8/8/1Q6 w - - 0 1"), tables, 1)
    assert mate is not None
    assert mate.cp == MATE - 1
    drawn = exact_label(Game("8/8/8/8/8/3k4/8/K6Q w - - 95 100"), tables, 4)
    assert drawn is not None
    assert drawn.cp == 0
    assert exact_label(Game(), tables, 4) is None


@pytest.mark.integration
def test_endgames_are_labelled_and_played_by_tablebases(tmp_path: Path) -> None:
    tables = Tablebases([TABLES])
    run_training(
        *("label", "--engine", SCRIPTED, "--output", tmp_path, "--workers", 1, "--games", 30, "--json"),
        *("--tablebases", TABLES, "--endgame-share", 1, "--book-share", 0, "--endgame-men", 4),
    )
    shard = read_shard(shards_of([tmp_path])[0])
    columns = shard.columns
    sample = wins = 0
    for fen, plies, result in zip(shard.fens(), columns["plies"], columns["results"], strict=True):
        game = Game(fen)
        expected = tables.probe_wdl(game)
        assert expected is not None
        if result != 2:
            wins += 1
            assert (result == 1) == ((expected > 0) == (game.turn == "white"))
        else:
            assert expected == 0
        for _ in range(int(plies)):
            assert columns["moves"][sample] == columns["best"][sample]
            game.push_uci(uci_move(int(columns["moves"][sample])))
            sample += 1
        assert (result == 2) or game.result()[1] == "checkmate"
    assert wins > 5
    table = table_of(shard, DataSettings(), TargetSettings(), input_format=1, tables=tables)
    assert set(np.unique(table.wdl[table.branch])) <= {0.0, 1.0}


@pytest.mark.integration
def test_label_rejects_folders_without_tablebases(tmp_path: Path) -> None:
    done = run_training(
        *("label", "--engine", SCRIPTED, "--output", tmp_path / "out", "--tablebases", tmp_path / "none"),
        status=1,
    )
    assert "tablebases: cannot read the folder" in done.stderr

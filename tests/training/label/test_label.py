# SPDX-License-Identifier: GPL-3.0-or-later
"""Games are labelled by a UCI engine, whatever becomes of it and of the run."""

import asyncio
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from engine._core import Game
from engine.apps.shards.move_codes import move_code
from engine.apps.shards.shard import Shard, read_shard
from tests.training.labels import move_value
from tests.training.run.runs import run_training, start_training
from training.config import DataSettings, TargetSettings
from training.data.reading import shards_of, table_of
from training.label.archive import LabelArchive
from training.label.engine import Labeller
from training.label.game import LabelledGame
from training.label.settings import LabelSettings

pytestmark = pytest.mark.integration

SCRIPTED = f"{sys.executable} -m tests.training.label.scripted_engine"
STOCKFISH = shutil.which("stockfish") or shutil.which("/usr/games/stockfish")


def label(output: Path, *flags: object, failure: str = "", status: int = 0) -> tuple[dict[str, Any], str]:
    """Label with the scripted engine; returns the summary and what was said."""
    done = run_training(
        *("label", "--engine", f"{SCRIPTED} {failure}".strip(), "--output", output, "--json"),
        *("--workers", 2, "--max-plies", 24, "--positions", 300, *flags),
        status=status,
    )
    return (json.loads(done.stdout) if status == 0 else {}), done.stderr


def games_of(folder: Path) -> dict[str, tuple[NDArray[Any], ...]]:
    """Moves, best moves and scores of each game, by its start and moves."""
    found: dict[str, tuple[NDArray[Any], ...]] = {}
    for path in shards_of([folder]):
        columns = read_shard(path).columns
        ends = np.cumsum(columns["plies"])
        for fen, first, last in zip(read_shard(path).fens(), ends - columns["plies"], ends, strict=True):
            moves = columns["moves"][first:last]
            parts = (moves, columns["best"][first:last], columns["best_cp"][first:last])
            found[fen + moves.tobytes().hex()] = parts
    return found


def check_labels(shard: Shard) -> None:
    """The labels of all positions, in the games and beside them, are what the scripted engine says."""
    columns = shard.columns
    sample = branch = 0
    for fen, plies in zip(shard.fens(), columns["plies"], strict=True):
        game = Game(fen)
        for _ in range(int(plies)):
            names = {move_code(move): move for move in game.legal_moves()}
            check_label(
                game, {name: columns[name][..., sample] for name in ("best", "best_cp", "lines", "lines_cp")}
            )
            if branch < shard.branches and columns["branch_at"][branch] == sample:
                move = int(columns["branch_move"][branch])
                assert move not in (columns["moves"][sample], columns["best"][sample])
                beside = game.copy()
                beside.push_uci(names[move])
                said = {
                    name: columns[f"branch_{name}"][..., branch]
                    for name in ("best", "best_cp", "lines", "lines_cp")
                }
                check_label(beside, said)
                branch += 1
            game.push_uci(names[int(columns["moves"][sample])])
            sample += 1
    assert branch == shard.branches > 0


def check_label(game: Game, said: dict[str, Any]) -> None:
    ranked = sorted(game.legal_moves(), key=lambda move: (-move_value(move), move))[:4]
    missing = [0] * (4 - len(ranked))
    assert said["lines"].tolist() == [move_code(move) for move in ranked] + missing
    assert said["lines_cp"].tolist() == [move_value(move) for move in ranked] + missing
    assert said["best"] == move_code(ranked[0])
    assert said["best_cp"] == move_value(ranked[0])


def test_games_and_what_lies_beside_them_are_labelled(tmp_path: Path) -> None:
    summary, _ = label(tmp_path / "out")
    (path,) = shards_of([tmp_path / "out"])
    shard = read_shard(path)
    assert shard.positions + shard.branches == summary["positions"] >= 300
    assert summary["branches"] == shard.branches
    assert summary["games"] == shard.games
    check_labels(shard)
    table = table_of(shard, DataSettings(), TargetSettings(), input_format=1)
    assert len(table) == summary["positions"]

    again, said = label(tmp_path / "out", "--positions", 400)
    assert again["resumed_games"] == summary["games"]
    assert again["positions"] >= 400
    assert len(games_of(tmp_path / "out")) == again["games"]
    assert "games are there already" in said


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    label(tmp_path, "--positions", 1)
    _, said = label(tmp_path, "--nodes", 999, status=1)
    assert "nodes: 4000 then, 999 now" in said


def test_a_run_that_was_killed_continues_and_labels_no_game_twice(tmp_path: Path) -> None:
    flags = ["--engine", SCRIPTED, "--workers", "1", "--max-plies", "24", "--positions", "1000000"]
    process = start_training("label", *flags, "--output", tmp_path / "killed", "--start-cp", 401)
    waiting = tmp_path / "killed" / "waiting.jsonl"
    while not (waiting.exists() and len(waiting.read_bytes().splitlines()) > 3):
        assert process.poll() is None
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    before = len(waiting.read_bytes().splitlines()) - 1

    summary, _ = label(tmp_path / "killed", "--start-cp", 401)
    assert summary["resumed_games"] >= before - 1
    label(tmp_path / "whole", "--start-cp", 401)
    killed, uninterrupted = games_of(tmp_path / "killed"), games_of(tmp_path / "whole")
    assert len(killed) == summary["games"]
    common = killed.keys() & uninterrupted.keys()
    assert len(common) >= min(len(killed), len(uninterrupted)) - 2  # those that the second run had under way
    for name in common:
        assert all(np.array_equal(a, b) for a, b in zip(killed[name], uninterrupted[name], strict=True))


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        ("die", "ended with exit code 3"),
        ("hang", "no answer within 1.5 s"),
        ("illegal", "a1a1, which is not legal"),
        ("silent", "no `info … score` line"),
    ],
)
def test_failing_engine_is_replaced_in_its_game(tmp_path: Path, failure: str, word: str) -> None:
    marker = tmp_path / "failed"
    summary, said = label(tmp_path / "out", "--patience-s", 1.5, "--workers=1", failure=f"{failure} {marker}")
    assert marker.exists()
    assert "an engine is replaced: " in said
    assert word in said
    assert summary["dropped"] == 0
    check_labels(read_shard(shards_of([tmp_path / "out"])[0]))


def test_game_is_dropped_by_name_when_every_engine_fails(tmp_path: Path) -> None:
    summary, said = label(tmp_path, "--positions", 100, "--max-plies", 8, failure="illegal often")
    assert summary["games"] > 0
    assert summary["dropped"] > 0
    assert "is dropped: 3 engines failed at " in said
    entries = [json.loads(line) for line in (tmp_path / "label.jsonl").read_text("utf-8").splitlines()]
    dropped = {number for entry in entries[1:] for number in entry["dropped"]}
    assert len(dropped) == summary["dropped"]


def test_an_engine_that_fails_in_every_game_ends_the_run(tmp_path: Path) -> None:
    _, said = label(tmp_path, "--max-plies", 8, failure="illegal always", status=1)
    assert "5 games in a row were dropped, the last one because 3 engines failed" in said


def test_an_engine_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    def said(engine: str, *flags: object) -> str:
        return run_training(
            "label", "--engine", engine, "--output", tmp_path / "out", "--workers", 1, *flags, status=1
        ).stderr

    assert "cannot start /no/engine: No such file" in said("/no/engine")
    assert "no option Colour; it has: MultiPV" in said(SCRIPTED, "--engine-option", "Colour=red")
    assert "ended with exit code" in said(f"{sys.executable} -c pass")
    assert run_training("label", "--output", tmp_path / "c", "--engine-option", "x", status=2).stderr


def test_a_game_comes_back_from_the_journal_as_it_was(tmp_path: Path) -> None:
    settings = LabelSettings()
    archive = LabelArchive(tmp_path, settings)
    with_branches = _game()
    archive.add(with_branches)
    archive.add(LabelledGame(4, dropped="why"))
    archive.close_files()
    archive = LabelArchive(tmp_path, settings)
    assert archive.numbers == {3, 4}
    assert archive.totals.dropped == 1
    archive.close()
    assert LabelledGame.of_data(json.loads(json.dumps(with_branches.data()))) == with_branches
    assert LabelArchive(tmp_path, settings).shards == 1


def test_games_appear_once_when_a_shard_was_unfinished(tmp_path: Path) -> None:
    settings = LabelSettings()
    archive = LabelArchive(tmp_path, settings)
    for number in (3, 4):
        archive.add(replace(_game(), number=number))
    archive.close_files()
    (tmp_path / "waiting.jsonl").replace(tmp_path / "aside.jsonl")
    archive = LabelArchive(tmp_path, settings)  # as after a kill -9 while the shard of 3 and 4 was made
    assert archive.numbers == {3, 4}
    archive.add(replace(_game(), number=5))
    archive.close_files()
    archive = LabelArchive(tmp_path, settings)
    assert archive.totals.games == 3
    archive.close()
    assert not (tmp_path / "aside.jsonl").exists()
    assert [read_shard(path).games for path in shards_of([tmp_path])] == [3]
    assert LabelArchive(tmp_path, settings).totals.games == 3


def test_a_shard_is_made_while_further_games_come_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.label.archive.SHARD_POSITIONS", 2 * _game().positions)
    archive = LabelArchive(tmp_path, LabelSettings())
    for number in range(7):
        archive.add(replace(_game(), number=number))
    archive.close()
    assert [read_shard(path).games for path in shards_of([tmp_path])] == [2, 2, 2, 1]
    archive = LabelArchive(tmp_path, LabelSettings())
    assert (archive.numbers, archive.shards, archive.totals.games) == (set(range(7)), 4, 7)
    archive.close()


async def test_labeller_leaves_no_engine_when_its_start_is_cancelled(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    script = tmp_path / "silent.py"
    script.write_text(
        f"import pathlib, sys, time\nsys.stdin.readline()\npathlib.Path({str(asked)!r}).touch()\n"
        "time.sleep(600)\n"
    )
    labeller = Labeller(LabelSettings(engine=f"{sys.executable} {script}"), lambda text: None)
    start = asyncio.create_task(labeller.start())
    while not asked.exists():
        await asyncio.sleep(0.01)
    engines = [each for each in psutil.Process().children() if str(script) in each.cmdline()]
    assert engines
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    assert not (psutil.wait_procs(engines, timeout=5)[1])


def _game() -> LabelledGame:
    from training.label.game import Alternative
    from training.label.lines import Label

    first = Label(move_code("e2e4"), 30, ((move_code("e2e4"), 28), (move_code("d2d4"), 25)))
    reply = Label(move_code("d7d5"), -20, ((move_code("d7d5"), -22),))
    fen = Game().fen()
    return LabelledGame(
        3, fen, 2, "length", [move_code("e2e4")], [first], [Alternative(0, move_code("d2d4"), reply)], 0.5
    )


def test_branches_are_drawn_from_a_network(tmp_path: Path) -> None:
    flags = ("--branch-network", "shipped", "--branch-policy", 1, "--branch-lines", 0, "--backend", "random")
    summary, _ = label(tmp_path, "--positions", 60, *flags)
    assert summary["branches"] > 0
    check_labels(read_shard(shards_of([tmp_path])[0]))


@pytest.mark.skipif(STOCKFISH is None, reason="needs Stockfish")
def test_stockfish_labels(tmp_path: Path) -> None:
    done = run_training(
        *("label", "--engine", STOCKFISH, "--output", tmp_path, "--workers", 2, "--nodes", 200),
        *("--positions", 300, "--json"),
    )
    assert json.loads(done.stdout)["dropped"] == 0
    shard = read_shard(shards_of([tmp_path])[0])
    falls = np.diff(shard.columns["lines_cp"].astype(int), axis=0)
    assert (falls[:, shard.columns["lines"][3] != 0] <= 0).all()
    assert len(table_of(shard, DataSettings(), TargetSettings(), input_format=1)) >= 300

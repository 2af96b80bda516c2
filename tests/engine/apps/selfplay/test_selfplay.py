# SPDX-License-Identifier: GPL-3.0-or-later
"""Self-play as a user runs it: whole games on a real evaluator, written, resumed, killed, checked."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter, sleep

import chess.pgn
import psutil
import pytest

from engine.apps.campaign.campaign import RunEnding
from engine.apps.games.journal import JournalError
from engine.apps.games.openings import OpeningSettings
from engine.apps.games.record import Reason
from engine.apps.selfplay.archive import Folder, GameEntry
from engine.apps.selfplay.campaign import SelfPlayCampaign, Totals
from engine.apps.selfplay.config import SELFPLAY_OPTIONS, Resignation, SelfPlayConfig
from engine.apps.selfplay.game import Resigning
from tests.engine.apps.games.recorder import Recorder
from tests.engine.apps.selfplay.checking import CheckedGame, check_file
from tests.engine.evaluation.evaluators import shared_evaluator
from tests.programs import ENGINE, run, started

pytestmark = pytest.mark.integration

RANDOM = SELFPLAY_OPTIONS.changed(backend="random", hash=1, tree_memory=16)
START = OpeningSettings(file="startpos")


def config(output: Path, **settings: object) -> SelfPlayConfig:
    defaults: dict[str, object] = {"options": RANDOM, "games": 6, "nodes": 8, "max_plies": 60, "workers": 1}
    return SelfPlayConfig(output=str(output), **(defaults | settings))  # type: ignore[arg-type]


def play(config: SelfPlayConfig, *, restart: bool = False) -> tuple[SelfPlayCampaign, RunEnding, Recorder]:
    view = Recorder()
    campaign = SelfPlayCampaign(config)
    with shared_evaluator():
        return campaign, asyncio.run(campaign.run(view, restart=restart)), view


def journal(folder: Folder) -> list[dict[str, object]]:
    return [json.loads(line) for line in folder.journal.read_text().splitlines()[1:]]


def check_folder(folder: Folder, games: int) -> dict[int, CheckedGame]:
    """Every game is there once, in each of the files, and all say the same."""
    entries = {int(str(entry["number"])): entry for entry in journal(folder)}
    assert sorted(entries) == list(range(games))
    assert len(journal(folder)) == len(entries) == games
    assert sorted(path.name for path in folder.training.iterdir()) == [
        folder.chunk(number).name for number in sorted(entries)
    ]
    checked = {number: check_file(folder.chunk(number)) for number in entries}
    with folder.pgn.open() as file:
        pgn = []
        while (game := chess.pgn.read_game(file)) is not None:
            assert not game.errors
            pgn.append(game)
    assert sorted(int(game.headers["GameNumber"]) - 1 for game in pgn) == sorted(entries)
    for game in pgn:
        number = int(game.headers["GameNumber"]) - 1
        entry = entries[number]
        assert game.headers["Result"] == entry["result"]
        assert game.end().ply() == entry["plies"]
        assert len(checked[number].records) == entry["positions"]
        assert checked[number].result == {"1-0": 1, "0-1": -1, "1/2-1/2": 0}[game.headers["Result"]]
    return checked


def test_games_are_played_and_written(tmp_path: Path) -> None:
    campaign, ending, view = play(config(tmp_path / "run", max_plies=400, resign=Resignation(percent=0.0)))
    assert ending == "finished"
    checked = check_folder(Folder(tmp_path / "run"), 6)
    assert [entry.number for entry in view.records] != []
    data = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert data["games"] == 6
    assert data["positions"] == sum(len(game.records) for game in checked.values())
    assert data["pace"]["evaluations"] > data["positions"] * 2
    assert campaign.throughput.pool.positions_per_second > 0
    for game in checked.values():
        assert set(game.records["visits"]) <= {7, 8}  # 7 where the tree of a position is used up
        # With temperature and noise, something else than the best move is played now and then.
        assert (game.records["best_idx"] != game.records["played_idx"]).any()


def test_other_games_are_not_mixed_in(tmp_path: Path) -> None:
    play(config(tmp_path / "run", games=2))
    with pytest.raises(JournalError, match=r"nodes: 8 .*9"):
        play(config(tmp_path / "run", games=2, nodes=9))
    _, _, view = play(config(tmp_path / "run", games=1, nodes=9), restart=True)
    assert len(view.records) == 1
    check_folder(Folder(tmp_path / "run"), 1)


def test_training_data_without_a_journal_is_not_touched(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.training.mkdir()
    folder.chunk(0).write_bytes(b"somebody's")
    with pytest.raises(JournalError, match="no journal says"):
        SelfPlayCampaign(config(tmp_path)).open()
    assert folder.chunk(0).read_bytes() == b"somebody's"


def test_lost_games_are_resigned_and_the_records_say_so(tmp_path: Path) -> None:
    resign = Resignation(percent=50.0, moves=1, earliest_move=3, playthrough=0.0)
    play(config(tmp_path / "run", games=4, resign=resign, openings=START, max_plies=1000))
    checked = check_folder(Folder(tmp_path / "run"), 4)
    entries = sorted(journal(Folder(tmp_path / "run")), key=lambda e: str(e["number"]))
    assert len(entries) == 4
    for number, entry in enumerate(entries):
        assert entry["reason"] == Reason.RESIGNATION
        assert entry["would_resign"] == ("white" if entry["result"] == "0-1" else "black")
        game = checked[number]
        assert game.adjudicated
        assert not game.length_limit
        assert len(game.records) >= 5  # Not before move 3.
        assert game.records["best_q"][-1] < 0


def test_a_side_resigns_after_enough_hopeless_moves_in_a_row() -> None:
    rule = Resignation(percent=5.0, moves=2, earliest_move=10)
    resigning = Resigning(rule, playthrough=False)
    assert not resigning.resigns("white", -0.99, 9)  # too early
    assert not resigning.resigns("white", -0.95, 10)
    assert not resigning.resigns("black", 0.95, 10)
    assert not resigning.resigns("white", -0.80, 11)  # 10 %: there is hope
    assert not resigning.resigns("white", -0.91, 12)
    before = resigning.first
    assert resigning.resigns("white", -0.91, 13)
    assert (before, resigning.first) == (None, "white")
    assert not Resigning(Resignation(percent=0.0, moves=1), playthrough=False).resigns("white", -1.0, 50)

    on_and_on = Resigning(rule, playthrough=True)
    for move in range(10, 20):
        assert not on_and_on.resigns("black", -1.0, move)
    assert on_and_on.first == "black"


def test_games_played_through_check_resigning(tmp_path: Path) -> None:
    resign = Resignation(percent=50.0, moves=1, playthrough=100.0)
    campaign, _, view = play(config(tmp_path / "run", games=4, resign=resign, max_plies=20))
    assert all(entry.playthrough and entry.would_resign for entry in view.records)
    assert all(entry.reason is not Reason.RESIGNATION for entry in view.records)
    drawn = sum(entry.result == "1/2-1/2" for entry in view.records)
    assert drawn > 0
    assert campaign.totals.resign_checked == 4
    assert campaign.totals.resign_wrong >= drawn


def test_a_game_that_is_too_long_is_drawn_and_marked(tmp_path: Path) -> None:
    play(config(tmp_path / "run", games=2, max_plies=12, openings=START, resign=Resignation(percent=0.0)))
    for game in check_folder(Folder(tmp_path / "run"), 2).values():
        assert (game.result, game.adjudicated, game.length_limit) == (0, True, True)
        assert len(game.records) == 12


def test_openings_and_random_plies_depend_on_the_number_alone(tmp_path: Path) -> None:
    def starts(name: str, games: int) -> list[str]:
        play(config(tmp_path / name, games=games, random_plies=6, max_plies=14))
        with (tmp_path / name / "games.pgn").open() as file:
            openings = {}
            while (game := chess.pgn.read_game(file)) is not None:
                moves = [node.move.uci() for node in game.mainline() if node.comment.startswith("book")]
                openings[int(game.headers["GameNumber"])] = " ".join(moves)
        return [openings[number] for number in sorted(openings)]

    three, five = starts("three", 3), starts("five", 5)
    assert three == five[:3]
    assert len(set(five)) == 5


def test_nodes_are_spread_and_trees_kept(tmp_path: Path) -> None:
    play(config(tmp_path / "spread", games=2, nodes=40, nodes_spread=0.5, max_plies=30))
    visits = [
        int(n)
        for game in check_folder(Folder(tmp_path / "spread"), 2).values()
        for n in game.records["visits"]
    ]
    assert min(visits) < 30 < 50 < max(visits) <= 60

    options = RANDOM.changed(nodes_as_playouts=True)
    play(config(tmp_path / "kept", options=options, games=2, nodes=40, reuse_tree=True, max_plies=30))
    visits = [
        int(n) for game in check_folder(Folder(tmp_path / "kept"), 2).values() for n in game.records["visits"]
    ]
    assert max(visits) > 40


def test_chess960_starts_from_all_positions(tmp_path: Path) -> None:
    play(config(tmp_path / "run", options=RANDOM.changed(chess960=True), max_plies=40))
    folder = Folder(tmp_path / "run")
    for number in range(6):
        check_file(folder.chunk(number))
    assert 'Variant "Chess960"' in folder.pgn.read_text()


def test_totals_count_results_and_reasons() -> None:
    totals = Totals()
    for number, (result, side) in enumerate([("1-0", "black"), ("0-1", "black"), ("1/2-1/2", None)]):
        totals.add(GameEntry(number, result, Reason.CHECKMATE, 50, 40, 1.0, True, side))  # type: ignore[arg-type]
    assert (totals.games, totals.positions, totals.plies) == (3, 120, 150)
    assert totals.results == Counter({"1-0": 1, "0-1": 1, "1/2-1/2": 1})
    assert (totals.resign_checked, totals.resign_wrong) == (2, 1)


# -- the command, as a process -----------------------------------------------------------------------------


SELFPLAY = (*ENGINE, "selfplay")

FAST = """
nodes = 16
max_plies = 60
[engine]
backend = "random"
hash = 1
tree_memory = 16
"""


def await_games(folder: Folder, games: int, process: subprocess.Popen[str]) -> None:
    deadline = perf_counter() + 60
    while not folder.journal.exists() or len(folder.journal.read_text().splitlines()) <= games:
        assert process.poll() is None
        assert perf_counter() < deadline
        sleep(0.02)


def test_a_killed_run_loses_nothing_but_the_games_in_flight(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    file = tmp_path / "fast.toml"
    file.write_text(FAST)
    arguments = (str(file), "--games", "16", "--concurrency", "4", "--output", str(folder.root))
    with started(*SELFPLAY, *arguments, stdout=subprocess.DEVNULL) as process:
        await_games(folder, 3, process)
        evaluators = psutil.Process(process.pid).children(recursive=True)
    before = {entry["number"] for entry in journal_lines(folder)}
    assert 3 <= len(before) < 16
    _, alive = psutil.wait_procs(evaluators, timeout=60)
    assert not alive
    done = run(*SELFPLAY, *arguments, "--json")
    assert json.loads(done.stdout)["resumed"] == len(before)
    check_folder(folder, 16)


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_reported_to_end_ends_with_what_it_has(tmp_path: Path, told: signal.Signals) -> None:
    folder = Folder(tmp_path / "run")
    file = tmp_path / "fast.toml"
    file.write_text(FAST)
    with started(*SELFPLAY, file, "--games=0", "--concurrency=4", "--output", folder.root) as process:
        await_games(folder, 2, process)
        process.send_signal(told)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command resumes" in errors
    assert "Traceback" not in errors
    assert "games at once" in output
    summary = json.loads(folder.summary.read_text())
    assert summary["games"] == len(journal(folder)) == len(list(folder.training.glob("*.gz"))) >= 2


def journal_lines(folder: Folder) -> list[dict[str, object]]:
    """The games in a journal whose last line may be cut off."""
    lines = folder.journal.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines[1:] if line.endswith("\n")]

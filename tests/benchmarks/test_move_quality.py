"""benchmarks/strength/move_quality.py: which positions are searched, what moves lose, nothing is lost."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.strength.move_losses import Searched, differences, qualities, questions, winning_probability
from benchmarks.strength.move_quality import player_of
from benchmarks.strength.replayed_games import GamesError, PlayedGame, Selection, read_games
from engine.match.timecontrol import TimeControl
from protocol.settings.spec import SettingsError
from tests.engine.match.matches import PROGRAM
from tests.paths import REPOSITORY

BENCHMARK = [sys.executable, "-m", "benchmarks.strength.move_quality"]

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"

PGN = """\
[Event "a"]

1. e4 { book } e5 { book } 2. Nf3 { +0.30/8 } Nc6 3. Bb5 a6 4. Ba4 Nf6 *

[Event "another kind of chess"]
[Variant "Atomic"]

1. e4 e5 *

[Event "b"]

1. d4 d5 2. c4 e6 3. Nc3 Nf6 *
"""

SPANISH = PlayedGame(1, START, ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6"), book=2)


@pytest.fixture
def pgn(tmp_path: Path) -> Path:
    path = tmp_path / "games.pgn"
    path.write_text(PGN)
    return path


# -- positions ---------------------------------------------------------------------------------------------


def test_games_are_read_with_their_books_and_other_chess_is_left_out(pgn: Path) -> None:
    spanish, queens_gambit = read_games(pgn)
    assert (spanish.number, spanish.book, spanish.moves[2]) == (1, 2, "g1f3")
    assert (queens_gambit.number, queens_gambit.book, len(queens_gambit.moves)) == (3, 0, 6)


def test_a_file_without_games_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GamesError, match=r"cannot read .*: No such file"):
        read_games(tmp_path / "absent.pgn")
    (tmp_path / "text.pgn").write_text("no game\n")
    with pytest.raises(GamesError, match="no game of ordinary chess"):
        read_games(tmp_path / "text.pgn")


def test_a_game_with_an_illegal_move_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken.pgn").write_text(PGN + '\n[Event "c"]\n\n1. e5 *\n')
    with pytest.raises(GamesError, match=r"broken\.pgn, game 4: illegal san: 'e5'"):
        read_games(tmp_path / "broken.pgn")


def test_one_side_is_asked_after_the_book() -> None:
    assert Selection("white").of([SPANISH])[0].plies == (2, 4)
    assert Selection("black").of([SPANISH])[0].plies == (3, 5)
    assert Selection("white", book=3).of([SPANISH])[0].plies == (4,)
    (replayed,) = Selection("black", last=3).of([SPANISH])
    assert replayed.plies == (3,) and len(replayed.moves) == 4


def test_the_position_of_each_ply_has_the_moves_before_it() -> None:
    (replayed,) = Selection("white").of([SPANISH])
    seen = [(ply, [move.uci() for move in board.move_stack]) for ply, board in replayed.boards()]
    assert seen == [(ply, list(SPANISH.moves[:ply])) for ply in (2, 4)]


def test_a_forced_move_is_not_asked_for() -> None:
    forced = PlayedGame(1, "7k/8/8/8/8/8/7r/K7 w - - 0 1", ("a1b1", "h8g8", "b1c1"))
    assert Selection("white").of([forced])[0].plies == (2,)
    assert Selection("white", last=1).of([forced]) == []


def test_a_seed_chooses_sides_and_order() -> None:
    games = [PlayedGame(number, START, SPANISH.moves) for number in range(1, 21)]
    first = Selection(seed=1).of(games)
    assert first == Selection(seed=1).of(games)
    assert {game.plies[0] for game in first} == {0, 1}
    assert [game.number for game in first] != sorted(game.number for game in first)
    assert [game.number for game in first] == [game.number for game in Selection("white").of(games)]
    assert first != Selection(seed=2).of(games)


# -- arithmetic --------------------------------------------------------------------------------------------


def searched(*moves: str, nodes: int = 10) -> dict[tuple[int, int], Searched]:
    """Moves in the positions (1, 0), (1, 1), …"""
    return {(1, ply): Searched(move, nodes, 50.0) for ply, move in enumerate(moves)}


BEFORE = {(1, ply, ""): cp for ply, cp in enumerate((0, 0, -400, 100))}


def test_first_the_positions_are_judged_and_then_the_moves_that_differ_where_nothing_is_decided() -> None:
    searches = {"a": searched("x", "x", "x", "x"), "b": searched("x", "y", "y")}
    assert questions(searches, {}) == [(1, 0, ""), (1, 1, ""), (1, 2, "")]
    assert questions(searches, BEFORE) == [(1, 1, "x"), (1, 1, "y")]
    assert questions(searches, {**BEFORE, (1, 1, "x"): 5}) == [(1, 1, "y")]
    assert questions(searches, {**BEFORE, (1, 1, "x"): 5, (1, 1, "y"): 7}) == []


def test_a_scale_of_150_centipawns() -> None:
    assert winning_probability(0) == 0.5
    assert winning_probability(150) == pytest.approx(math.e / (1 + math.e))
    assert winning_probability(-10_000) == pytest.approx(0.0)


def test_losses_are_those_to_the_best_of_the_moves_played() -> None:
    searches = {"a": searched("x", "x", "x", "x"), "b": searched("x", "y", "y", "y", nodes=30)}
    judgements = {**BEFORE, (1, 1, "x"): 0, (1, 1, "y"): 30, (1, 3, "x"): 150, (1, 3, "y"): 0}
    small = 100 * (winning_probability(30) - 0.5)  # 4.98
    large = 100 * (winning_probability(150) - 0.5)  # 23.1
    a, b = qualities(searches, judgements)
    assert (a.positions, a.median_nodes, a.median_ms) == (3, 10, 50.0), "a decided position is left out"
    assert a.mean_loss == pytest.approx(small / 3)
    assert a.standard_error == pytest.approx(small / 3)  # Of 0, 0 and x it is x / 3.
    assert (a.above_5, a.above_10) == (0, 0)
    assert b.median_nodes == 30
    assert b.mean_loss == pytest.approx(large / 3)
    assert b.above_5 == b.above_10 == pytest.approx(100 / 3)
    (pair,) = differences(searches, judgements)
    assert (pair.player, pair.other, pair.positions, pair.differ) == ("a", "b", 3, 2)
    assert pair.mean == pytest.approx((small - large) / 3)


def test_a_pair_is_compared_where_both_have_searched_and_all_is_judged() -> None:
    searches = {"a": searched("x", "x"), "b": searched("y", "x"), "c": searched("x")}
    judgements = {**BEFORE, (1, 0, "x"): 0, (1, 0, "y"): 0}
    assert [each.positions for each in qualities(searches, judgements)] == [1, 1, 1]
    assert [pair.positions for pair in differences(searches, judgements)] == [2, 1, 1]
    del judgements[1, 0, "y"]
    assert [pair.positions for pair in differences(searches, judgements)] == [1, 1, 0]


# -- players -----------------------------------------------------------------------------------------------


def test_players_are_written_as_in_matches() -> None:
    program = player_of("name=a,program=stockfish,Hash=64", TimeControl(movetime_ms=50))
    assert (program.command, program.uci_options) == (("stockfish",), {"Hash": "64"})
    engine = player_of("name=b,cpuct=2,nodes=7", TimeControl(movetime_ms=50))
    assert engine.command[-1] == str(REPOSITORY / "run_engine.py")
    assert engine.uci_options == {"CPuct": "2.0"}
    assert engine.time.nodes == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("program=stockfish,nodes=1", "give it a name"),
        ("name=a", "movetime, nodes or depth"),
        ("name=a,tc=10+1", "movetime, nodes or depth"),
        ("name=a,nodes=1,cpukt=2", "no such option: 'cpukt'"),
    ],
)
def test_a_player_that_cannot_be_searched_is_an_error(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        player_of(text, TimeControl())


# -- the command -------------------------------------------------------------------------------------------


def run(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [*BENCHMARK, *map(str, arguments)]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == code, ended.stderr
    return ended


def scripted(name: str, fault: str = "none", ply: int = 0) -> tuple[str, str]:
    """The flag of a program that plays the first legal move."""
    return "--player", f'name={name},nodes=1,program={sys.executable},args="{PROGRAM} {fault} {ply}"'


def lines_of(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_engines_are_searched_judged_and_compared_and_others_are_added(pgn: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    engine = "name=engine,nodes=8,backend=random,hash=1,tree_memory=16"
    run("search", folder, "--pgn", pgn, "--side", "white", "--player", engine)
    begun = (folder / "searches.jsonl").read_text()
    run("search", folder, "--player", engine, *scripted("first"))
    assert (folder / "searches.jsonl").read_text().startswith(begun)
    assert len(lines_of(folder, "searches.jsonl")) == 1 + 2 + 4, "a header, two players, two games of each"
    judge = f'program={sys.executable},args="{PROGRAM}"'
    run("judge", folder, "--judge", judge, "--processes", 2)
    judged = (folder / "judgements.jsonl").read_text()
    run("judge", folder, "--judge", judge)
    assert (folder / "judgements.jsonl").read_text() == judged, "nothing is judged twice"
    shown = json.loads(run("show", folder, "--json").stdout)
    assert [each["positions"] for each in shown["players"]] == [6, 6]
    assert shown["pairs"][0]["mean"] == 0, "the judge finds every move equally good"
    assert shown["not_judged"] == 0
    assert "engine - first" in run("show", folder).stdout


def test_an_engine_that_dies_is_an_error_and_nothing_is_lost(pgn: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    failed = run("search", folder, "--pgn", pgn, *scripted("well"), *scripted("ill", "crash", 2), code=2)
    assert "ill: the program ended with exit code 3: out of chess" in failed.stderr
    assert [entry["player"] for entry in lines_of(folder, "searches.jsonl")[3:]] == ["well"]
    illegal = run("search", folder, *scripted("other", "illegal", 2), code=2)
    assert "other plays e1e5, which is not legal" in illegal.stderr
    again = run("search", folder, *scripted("ill"), code=2)
    assert "ill was searched before as" in again.stderr
    run("search", folder, *scripted("well"))
    entries = lines_of(folder, "searches.jsonl")
    assert [entry["player"] for entry in entries if "searched" in entry] == ["well", "well"]


def test_positions_of_other_games_are_not_mixed_in(pgn: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert "--pgn FILE" in run("search", folder, *scripted("a"), code=2).stderr
    run("search", folder, "--pgn", pgn, *scripted("a"))
    other = run("search", folder, "--pgn", pgn, "--last", 2, *scripted("a"), code=2)
    assert "positions of other games" in other.stderr

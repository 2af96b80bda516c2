# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront play`, with the words of a person on standard input."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess.pgn
import pytest

from tests import programs
from tests.engine.evaluation.evaluators import shared_evaluator
from tests.programs import ENGINE, say, started

pytestmark = pytest.mark.integration


PLAY = ("play", "--backend", "random")
COMMAND = (*ENGINE, *PLAY)
THINKING = ("--white", "--nodes", "1000000000")
"""The engine does not answer within the test."""

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs signals and terminals of POSIX")


@pytest.fixture(autouse=True)
def shared() -> Iterator[None]:
    with shared_evaluator():
        yield


def run(tmp_path: Path, words: str | bytes, *flags: str) -> subprocess.CompletedProcess[str]:
    text = words if isinstance(words, str) else words.decode("latin-1")
    encoding = "utf-8" if isinstance(words, str) else "latin-1"
    return programs.command(*PLAY, *flags, status=None, input=text, cwd=tmp_path, encoding=encoding)


def play(tmp_path: Path, words: str, *flags: str) -> str:
    done = run(tmp_path, words, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def until_written(process: subprocess.Popen[Any], path: Path, text: str) -> None:
    while not path.exists() or text not in path.read_text("utf-8"):
        assert process.poll() is None
        time.sleep(0.01)


def saved(path: Path) -> chess.pgn.Game:
    with path.open(encoding="utf-8") as file:
        game = chess.pgn.read_game(file)
    assert game is not None and not game.errors
    return game


def test_a_game_is_played_and_saved(tmp_path: Path) -> None:
    output = play(tmp_path, "e4\nnonsense\nhint\nback\nd2d4\nresign\n", "--white", "--nodes", "5")
    assert "not a legal move" in output and "The engine would play" in output and "♜" in output
    game = saved(tmp_path / "games.pgn")
    moves = [move.uci() for move in game.mainline_moves()]
    assert moves[0] == "d2d4" and len(moves) == 2
    assert game.headers["Result"] == "0-1" and game.headers["White"] == "Person"
    assert game.headers["Black"] == "Wavefront, 5 nodes"
    person, engine = game.mainline()
    assert person.emt() is not None and person.eval() is None
    assert engine.emt() is not None and engine.eval() is not None
    assert engine.comment.endswith("resignation")


def test_without_nodes_the_opponent_has_limited_strength(tmp_path: Path) -> None:
    assert "against Wavefront, Elo 900" in play(tmp_path, "e4\nresign\n", "--white", "--elo", "900")
    assert saved(tmp_path / "games.pgn").headers["Black"] == "Wavefront, Elo 900"


def test_black_begins_with_the_engines_move(tmp_path: Path) -> None:
    output = play(tmp_path, "moves\nflip\n", "--black", "--ascii")
    assert "K Q" in output and "♜" not in output
    assert saved(tmp_path / "games.pgn").headers["Black"] == "Person"


def test_play_names_the_last_move_and_the_colour_drawn_by_lot(tmp_path: Path) -> None:
    output = play(tmp_path, "quit\n", "--nodes", "5")
    assert "White, drawn by lot" in output or ("Black, drawn by lot" in output and "last move: 1. " in output)


@pytest.mark.parametrize("word", ["quit", "EXIT", ""])
def test_play_saves_an_unfinished_game_when_the_person_leaves(tmp_path: Path, word: str) -> None:
    play(tmp_path, f"e4\n{word}\n" if word else "e4\n", "--white", "--nodes", "5")
    game = saved(tmp_path / "games.pgn")
    assert (game.headers["Result"], game.end().ply()) == ("*", 2)


@pytest.mark.parametrize("word", ["--", "0000", "Z0", "@@@@", "O-O-O-O", "e1e1", "O-O", "\xff"])
def test_play_refuses_words_that_are_no_legal_move(tmp_path: Path, word: str) -> None:
    done = run(tmp_path, f"e4\nNf3\n{word}\nresign\n".encode("latin-1"), "--white", "--nodes", "2")
    assert done.returncode == 0 and done.stdout.count("not a legal move") == 1
    assert saved(tmp_path / "games.pgn").end().ply() == 4


# -- ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fen", "words", "result"),
    [
        ("7k/8/6K1/8/8/8/8/R7 w - - 99 80", "Ra8#", "1-0"),
        ("7k/8/6K1/8/8/8/8/R7 w - - 99 80", "Ra2", "1/2-1/2"),
        ("7k/8/6K1/8/8/8/8/R7 w - - 98 80", "Ra2", "1/2-1/2"),
        ("6k1/p5p1/8/7Q/8/8/5PPP/6K1 w - - 0 1", "Qe8+ Qh5+ Qe8+ Qh5+ resign", "0-1"),
        ("6k1/p5p1/8/7Q/8/8/5PPP/6K1 w - - 0 1", "Qe8+ Qh5+ Qe8+ Qh5+ draw", "1/2-1/2"),
        ("6k1/p5p1/8/7Q/8/8/5PPP/6K1 w - - 0 1", "Qe8+ Qh5+ " * 4, "1/2-1/2"),
        ("7k/8/6KP/8/8/8/8/8 w - - 0 1", "h7", "1/2-1/2"),
    ],
)
def test_play_ends_a_decided_game(tmp_path: Path, fen: str, words: str, result: str) -> None:
    play(tmp_path, "\n".join(words.split()) + "\n", "--white", "--nodes", "2", "--fen", fen)
    assert saved(tmp_path / "games.pgn").headers["Result"] == result


@pytest.mark.parametrize(
    ("fen", "reason"),
    [
        ("4k3/8/8/8/8/8/4Q3/4K3 w - - 0 1", "in check"),
        ("8/8/8/8/8/8/8/K7 w - - 0 1", "no king"),
        ("P3k3/8/8/8/8/8/8/4K3 w - - 0 1", "a pawn stands on"),
        ("R6k/6pp/8/8/8/8/8/6K1 b - - 0 1", "checkmate"),
        ("8/8/8/8/8/6k1/6p1/6K1 w - - 0 1", "stalemate"),
        ("\x1b[31m", "FEN"),
    ],
)
def test_play_refuses_an_unplayable_position_at_the_start(tmp_path: Path, fen: str, reason: str) -> None:
    done = run(tmp_path, "", "--white", "--fen", fen)
    assert done.returncode == 2 and reason in done.stderr and "\x1b" not in done.stderr
    assert not [*tmp_path.iterdir()]


# -- the file ----------------------------------------------------------------------------------------------


def test_play_appends_to_a_file_with_games(tmp_path: Path) -> None:
    path = tmp_path / "mine.pgn"
    path.write_text('[Event "Mine"]\n\n1. e4 *', "utf-8")
    for _ in range(2):
        play(tmp_path, "d4\nback\nc4\nresign\n", "--white", "--nodes", "5", "--pgn", "mine.pgn")
    with path.open(encoding="utf-8") as file:
        games = [chess.pgn.read_game(file) for _ in range(4)]
    assert [game and game.headers["Event"] for game in games] == ["Mine", *["Game in a terminal"] * 2, None]
    assert [game and game.variation(0).move.uci() for game in games[:3]] == ["e2e4", "c2c4", "c2c4"]


@pytest.mark.parametrize("name", ["missing/x.pgn", "folder", "notes.txt", "data.gz", "/dev/full"])
def test_play_refuses_a_file_at_the_start_when_it_cannot_hold_games(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("Buy milk")
    (tmp_path / "data.gz").write_bytes(b"\x1f\x8b\x08")
    done = run(tmp_path, "e4\nresign\n", "--white", "--nodes", "2", "--pgn", name)
    assert done.returncode == 1 and name in done.stderr and "--pgn" in done.stderr
    assert done.stdout == ""
    assert (tmp_path / "notes.txt").read_text() == "Buy milk"


def test_play_leaves_no_file_when_no_move_was_played(tmp_path: Path) -> None:
    play(tmp_path, "help\nresign\n", "--white", "--nodes", "2")
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(sys.platform != "linux", reason="limits the files of a running process")
def test_play_prints_the_game_when_the_disk_is_full(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "games.pgn"
    path.write_text('[Event "Mine"]\n\n1. e4 *\n\n')
    with started(*COMMAND, "--white", "--nodes", "2", cwd=tmp_path) as process:
        say(process, "e4\n")
        until_written(process, path, "1... ")
        limit = path.stat().st_size + 5
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        output, errors = process.communicate("d4\nc4\nresign\n", timeout=60)
    assert process.returncode == 1 and errors.count("cannot write games.pgn") == 1
    assert "1. e4" in output and "3. c4" in output and output.rstrip().endswith("0-1")
    mine, kept = path.read_text("utf-8").split('[Event "Game in a terminal"]')
    assert mine == '[Event "Mine"]\n\n1. e4 *\n\n'
    assert "1... " in kept and kept.endswith(" *\n\n")


@posix
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
@pytest.mark.parametrize(("nodes", "written"), [(10**9, "1. e4"), (2, "1... ")])
def test_play_keeps_the_game_when_a_signal_ends_it(
    tmp_path: Path, nodes: int, written: str, name: str
) -> None:
    path = tmp_path / "games.pgn"
    with started(*COMMAND, "--white", f"--nodes={nodes}", cwd=tmp_path) as process:
        say(process, "e4\n")
        until_written(process, path, written)
        process.send_signal(signal.Signals[name])
        output, errors = process.communicate(timeout=60)
    status, told = (-signal.SIGKILL, False) if name == "SIGKILL" else (130, True)
    assert (process.returncode, "games.pgn" in output) == (status, told), errors
    assert "Traceback" not in errors and saved(path).headers["Result"] == "*"


@posix
def test_play_keeps_the_game_when_its_terminal_is_closed(tmp_path: Path) -> None:
    import pty

    path = tmp_path / "games.pgn"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(
            sys.executable, [*COMMAND, "--white", "--nodes", "2"], {**os.environ, "TERM": "xterm-256color"}
        )
    os.write(terminal, b"e4\n")
    shown = b""
    while b"last move" not in shown:
        shown += os.read(terminal, 1 << 16)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert b"\x1b[38;5" in shown, "squares have colours"
    assert saved(path).end().ply() == 2


@posix
def test_two_games_are_not_written_to_one_file_at_a_time(tmp_path: Path) -> None:
    with started(*COMMAND, *THINKING, cwd=tmp_path) as process:
        say(process, "e4\n")
        until_written(process, tmp_path / "games.pgn", "1. e4")
        done = run(tmp_path, "d4\n", *THINKING)
        assert done.returncode == 1 and "in use by another program" in done.stderr
        process.send_signal(signal.SIGINT)


@posix
def test_play_needs_its_standard_input(tmp_path: Path) -> None:
    done = programs.run("sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, status=2, cwd=tmp_path)
    assert "standard input" in done.stderr and "Traceback" not in done.stderr

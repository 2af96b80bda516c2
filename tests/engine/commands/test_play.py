# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront play`, with the words of a person on standard input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import chess.pgn
import pytest

from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration


def play(tmp_path: Path, words: str, *flags: str) -> str:
    command = [
        sys.executable,
        str(REPOSITORY / "run_engine.py"),
        "play",
        "--backend",
        "random",
    ]
    done = subprocess.run(
        [*command, *flags],
        input=words,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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


def test_without_nodes_the_opponent_has_limited_strength(tmp_path: Path) -> None:
    assert "against Wavefront, Elo 900" in play(tmp_path, "e4\nresign\n", "--white", "--elo", "900")
    assert saved(tmp_path / "games.pgn").headers["Black"] == "Wavefront, Elo 900"


def test_black_begins_with_the_engine_s_move_and_letters_show_the_board(tmp_path: Path) -> None:
    output = play(tmp_path, "moves\nflip\n", "--black", "--ascii")
    assert "K Q" in output and "♜" not in output
    assert saved(tmp_path / "games.pgn").headers["Black"] == "Person"


def test_a_mate_ends_the_game(tmp_path: Path) -> None:
    fen = "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"
    assert "1-0, by checkmate." in play(tmp_path, "Rd8\n", "--white", "--fen", fen)

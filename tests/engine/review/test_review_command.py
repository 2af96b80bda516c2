# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront review`, run as users run it, on strange games too."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import chess.pgn
import pytest

from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

GAMES = """[Event "with <tags> & clocks"]
[White "A <b>"]
[Black "B"]
[Result "0-1"]

1. f3 {[%clk 0:05:00] a comment} e5 2. g4 $3 (2. e4 Nf6 {a variation}) Qh4# 0-1

[Event "broken"]
[White "C"]
[Black "D"]
[Result "*"]

1. e4 e5 2. Ke3 *

[Event "960"]
[White "E"]
[Black "F"]
[Variant "Chess960"]
[SetUp "1"]
[FEN "nrbknbqr/pppppppp/8/8/8/8/PPPPPPPP/NRBKNBQR w KQkq - 0 1"]
[Result "1/2-1/2"]

1. e4 e5 2. d4 1/2-1/2

[Event "no moves"]
[White "G"]
[Black "H"]
[Result "1-0"]

1-0
"""


def review(tmp_path: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "run_engine.py"), "review", "games.pgn"]
    done = subprocess.run(
        [*command, "--backend", "random", "--nodes", "20", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "games.pgn").write_text(GAMES, "utf-8")
    return tmp_path


def test_games_are_annotated_and_broken_ones_named(folder: Path) -> None:
    done = review(folder)
    assert "games.pgn:8: game 2 skipped" in done.stderr and "Ke3" in done.stderr
    stream = io.StringIO((folder / "review" / "games.pgn").read_text("utf-8"))
    games = []
    while game := chess.pgn.read_game(stream):
        assert not game.errors
        games.append(game)
    assert [game.headers["White"] for game in games] == ["A <b>", "E", "G"]
    first = games[0].next()
    assert first is not None and first.clock() == 300.0 and "a comment" in first.comment
    assert all(node.eval() is not None for node in list(games[0].mainline())[:-1])
    second = list(games[0].mainline())[1]
    assert any("a variation" in node.comment for line in second.variations[1:] for node in line.mainline())
    assert 3 not in list(games[0].mainline())[2].nags  # A mark of the source is replaced.
    assert games[1].board().chess960


def test_pages_load_nothing_and_escape_names(folder: Path) -> None:
    review(folder)
    pages = sorted((folder / "review").glob("*.html"))
    assert [page.name for page in pages] == ["game-1.html", "game-3.html", "game-4.html", "index.html"]
    for page in pages:
        text = page.read_text("utf-8")
        assert "A <b>" not in text
        links = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\')\s>]+)', text)
        assert not [link for link in links if re.match(r"(https?:)?//", link)]
    assert "A &lt;b&gt;" in pages[0].read_text("utf-8")


def test_a_review_resumes_and_refuses_other_settings(folder: Path) -> None:
    first = [json.loads(line) for line in review(folder, "--json").stdout.splitlines()]
    assert sorted(entry["number"] for entry in first) == [1, 2, 3, 4]
    journal = folder / "review" / "review.jsonl"
    lines = journal.read_text("utf-8").splitlines(keepends=True)
    journal.write_text("".join(lines[:3]) + lines[3][:20], "utf-8")  # As kill -9 may leave it.
    again = [json.loads(line) for line in review(folder, "--json").stdout.splitlines()]
    assert sorted(entry["number"] for entry in again) == [1, 2, 3, 4]
    assert journal.read_text("utf-8").splitlines()[:3] == [line.rstrip() for line in lines[:3]]
    refused = review(folder, "--nodes", "30", status=1)
    assert "other settings" in refused.stderr
    review(folder, "--nodes", "30", "--restart")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "cannot read games.pgn" in review(tmp_path, status=1).stderr
    (tmp_path / "games.pgn").write_text("no game at all", "utf-8")
    assert "no games in games.pgn" in review(tmp_path, status=1).stderr

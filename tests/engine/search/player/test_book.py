# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves from an opening book, by UCI as a GUI plays and with the book of GNU Chess."""

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from engine._core import Game
from engine.options import Options
from engine.search.limits import Clock, Limits
from engine.search.player.book import book_report
from tests.engine.uci.uci_process import UciProcess, shared_engine

CLOCK = Limits(clock=Clock(60_000, 60_000))

START_KEY = 0x463B96181691FC9C
KING_PAWN, QUEEN_PAWN = 0o1434, 0o1333


def book_of(path: Path, *entries: tuple[int, int, int]) -> Path:
    """Write a book with entries of key, move and weight."""
    path.write_bytes(
        b"".join(
            key.to_bytes(8, "big") + move.to_bytes(2, "big") + weight.to_bytes(2, "big") + bytes(4)
            for key, move, weight in sorted(entries, key=lambda entry: entry[0])
        )
    )
    return path


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return book_of(tmp_path / "book.bin", (START_KEY, KING_PAWN, 1), (START_KEY, QUEEN_PAWN, 3))


def chosen(options: Options, limits: Limits = CLOCK, game: Game | None = None, seed: int = 1) -> str | None:
    complaints: list[str] = []
    report = book_report(game or Game(), limits, options, Random(seed), complaints.append)
    assert not complaints
    return None if report is None else report.best_move


def test_best_plays_the_largest_weight(book: Path) -> None:
    options = Options(book_file=str(book), book_selection="best")
    assert {chosen(options, seed=seed) for seed in range(20)} == {"d2d4"}


def test_moves_are_drawn_by_their_weights(tmp_path: Path) -> None:
    moves = {"e2e4": KING_PAWN, "d2d4": QUEEN_PAWN, "g1f3": 0o0625, "c2c4": 0o1232, "others": 0o1020}
    weights = dict(zip(moves, (12135, 11257, 3745, 3294, 366), strict=True))
    book = book_of(tmp_path / "book.bin", *((START_KEY, moves[name], weights[name]) for name in moves))
    options = Options(book_file=str(book))
    draws = 3000
    counts = Counter(chosen(options, seed=seed) for seed in range(draws))
    counts["others"] = counts.pop("a2a3")
    expected = {move: draws * weight / 30797 for move, weight in weights.items()}
    assert (
        sum((counts[move] - mean) ** 2 / mean for move, mean in expected.items()) < 18.5
    )  # 0.1 %, 4 degrees


@pytest.mark.parametrize(
    "limits",
    [
        Limits(infinite=True),
        Limits(clock=Clock(60_000, 60_000), ponder=True),
        Limits(mate=3),
        Limits(nodes=10, search_moves=("a2a3",)),
    ],
)
def test_analysis_is_searched(book: Path, limits: Limits) -> None:
    assert chosen(Options(book_file=str(book)), limits) is None


@pytest.mark.parametrize("changed", [{"multipv": 2}, {"chess960": True}, {"book_file": ""}])
def test_several_lines_and_chess960_are_searched(book: Path, changed: dict[str, int | str]) -> None:
    assert chosen(Options(**{"book_file": str(book), **changed})) is None  # type: ignore[arg-type]


def test_the_depth_counts_full_moves(tmp_path: Path) -> None:
    import chess
    import chess.polyglot

    line, entries = chess.Board(), []
    for move in map(chess.Move.from_uci, ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5")):
        entries.append((chess.polyglot.zobrist_hash(line), move.to_square | move.from_square << 6, 1))
        line.push(move)
    options = Options(book_file=str(book_of(tmp_path / "book.bin", *entries)), book_depth=2)
    game = Game()
    for move in line.move_stack[:4]:
        assert chosen(options, game=game) == move.uci()
        game.push_uci(move.uci())
    assert chosen(options, game=game) is None


def test_castling_is_written_as_uci_has_it(tmp_path: Path) -> None:
    import chess
    import chess.polyglot

    fen = "r1bqk1nr/pppp1ppp/2n5/2b1p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4"
    king_takes_rook = 7 | 4 << 6
    book = book_of(tmp_path / "book.bin", (chess.polyglot.zobrist_hash(chess.Board(fen)), king_takes_rook, 1))
    assert chosen(Options(book_file=str(book)), game=Game(fen)) == "e1g1"


def test_a_weight_of_zero_is_never_played(tmp_path: Path) -> None:
    book = book_of(tmp_path / "book.bin", (START_KEY, KING_PAWN, 0))
    assert chosen(Options(book_file=str(book))) is None


def test_an_unreadable_book_is_named_and_the_move_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "book.bin"
    path.write_bytes(b"no book")
    complaints: list[str] = []
    assert book_report(Game(), CLOCK, Options(book_file=str(path)), Random(1), complaints.append) is None
    assert len(complaints) == 1 and str(path) in complaints[0]


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["pipe", "folder", "missing", "empty"])
def test_a_book_that_is_no_file_is_refused_and_the_move_is_searched(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "book.bin"
    if kind == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("no named pipes here")
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    complaints: list[str] = []
    assert book_report(Game(), CLOCK, Options(book_file=str(path)), Random(1), complaints.append) is None
    assert len(complaints) == 1 and str(path) in complaints[0]
    with shared_engine() as engine:
        engine.send(f"setoption name BookFile value {path}")
        (said,) = engine.sync()
        assert "error" in said and "BookFile" in said
        engine.send("position startpos")
        assert engine.best_move("go nodes 5") != "(none)"


@pytest.mark.integration
def test_a_game_by_uci_begins_with_the_book(book: Path) -> None:
    with UciProcess(f"BookFile {book}", "BookSelection best") as engine:
        engine.send("position startpos")
        assert engine.best_move("go movetime 50") == "d2d4"
        engine.send("position startpos moves d2d4")
        assert engine.best_move("go nodes 5") != "(none)"
        engine.send("position startpos")
        assert engine.best_move("go nodes 5 searchmoves a2a3") == "a2a3"

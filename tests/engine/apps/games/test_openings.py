# SPDX-License-Identifier: GPL-3.0-or-later
"""Openings from every kind of file, in order and at random."""

import struct
from pathlib import Path

import chess
import chess.polyglot
import pytest

from engine._core import Game
from engine.apps.games.openings import (
    SHIPPED_BOOK,
    Opening,
    OpeningError,
    OpeningSettings,
    Order,
    read_openings,
)

EPD = """\
# three openings
rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - hmvc 0; fmvn 1; id "king's pawn";
rnbqkbnr/pppppppp/8/8/3P4/8/PPP1PPPP/RNBQKBNR b KQkq - 0 1

rnbqkbnr/pppppppp/8/8/2P5/8/PP1PPPPP/RNBQKBNR b KQkq -
"""

PGN = """\
[Event "First"]
[ECO "C20"]
[Opening "King's Pawn"]

1. e4 {a comment with
[brackets "inside"] of it} e5 (1... c5 2. Nf3) 2. Nf3 Nc6 *

[Event "?"]
[SetUp "1"]
[FEN "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"]

1. e4 Kd7 *
"""


def book(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return str(path)


def sequential(
    file: str, rounds: int, *, start: int = 1, plies: int = 0, chess960: bool = False
) -> list[Opening]:
    settings = OpeningSettings(file, "sequential", plies, start)
    return read_openings(settings, rounds, seed=1, chess960=chess960)


def test_epd_and_fen_lines(tmp_path: Path) -> None:
    openings = sequential(book(tmp_path, "book.epd", EPD), 3)
    assert [opening.name for opening in openings] == ["king's pawn", "book.epd:3", "book.epd:5"]
    assert openings[0].fen == "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
    assert all(opening.moves == () for opening in openings)


def test_sequential_openings_begin_at_start_and_come_round_again(tmp_path: Path) -> None:
    names = [opening.name for opening in sequential(book(tmp_path, "book.epd", EPD), 5, start=3)]
    assert names == ["book.epd:5", "king's pawn", "book.epd:3", "book.epd:5", "king's pawn"]


def test_pgn_main_lines_with_their_names(tmp_path: Path) -> None:
    first, second = sequential(book(tmp_path, "book.pgn", PGN), 2)
    assert first == Opening("C20 King's Pawn", None, ("e2e4", "e7e5", "g1f3", "b8c6"))
    assert second == Opening("book.pgn:8", "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", ("e2e4", "e8d7"))


def test_plies_cut_lines_short(tmp_path: Path) -> None:
    (opening,) = sequential(book(tmp_path, "book.pgn", PGN), 1, plies=3)
    assert opening.moves == ("e2e4", "e7e5", "g1f3")


def test_random_order_has_each_opening_once_per_round(tmp_path: Path) -> None:
    path = book(tmp_path, "book.epd", EPD)
    openings = read_openings(OpeningSettings(path), 7, seed=5)
    assert len(set(openings[:3])) == len(set(openings[3:6])) == 3
    assert read_openings(OpeningSettings(path), 7, seed=5) == openings
    assert read_openings(OpeningSettings(path), 4, seed=5) == openings[:4]
    assert any(read_openings(OpeningSettings(path), 7, seed=seed) != openings for seed in range(6, 12))


def polyglot_book(path: Path) -> str:
    """A Polyglot file in which White has two first moves and Black one answer to one of them."""
    entries = []
    for moves, weight in ((["e2e4"], 3), (["d2d4"], 1), (["e2e4", "c7c5"], 1)):
        board = chess.Board()
        for move in moves[:-1]:
            board.push_uci(move)
        last = chess.Move.from_uci(moves[-1])
        raw = last.to_square | last.from_square << 6
        entries.append((chess.polyglot.zobrist_hash(board), raw, weight))
    path.write_bytes(
        b"".join(struct.pack(">QHHI", key, raw, weight, 0) for key, raw, weight in sorted(entries))
    )
    return str(path)


def test_polyglot_lines_are_walked_by_weight(tmp_path: Path) -> None:
    path = polyglot_book(tmp_path / "book.bin")
    openings = read_openings(OpeningSettings(path, plies=2), 2, seed=3)
    assert {opening.moves for opening in openings} == {("e2e4", "c7c5"), ("d2d4",)}
    many = read_openings(OpeningSettings(path, plies=1), 40, seed=3)
    assert 20 < sum(opening.moves == ("e2e4",) for opening in many[2:]) < 38  # three quarters of 38
    assert read_openings(OpeningSettings(path, plies=1), 10, seed=3) == many[:10]


@pytest.mark.integration
def test_the_shipped_book_has_2000_different_balanced_openings() -> None:
    openings = sequential("", 2000)
    assert len({opening.board(chess960=False).epd() for opening in openings}) == 2000
    assert all(6 <= len(opening.moves) <= 10 for opening in openings)
    assert SHIPPED_BOOK.stat().st_size < 200_000


def test_chess960_begins_in_the_960_positions() -> None:
    openings = read_openings(OpeningSettings(), 960, seed=1, chess960=True)
    assert len({opening.fen for opening in openings}) == 960
    for opening in openings[::40]:
        assert len(Game(opening.fen, True).legal_moves()) == opening.board(chess960=True).legal_moves.count()


def test_the_initial_position_alone() -> None:
    assert sequential("startpos", 2) == [Opening("initial position")] * 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bad.epd", "rnbqkbnr/pppppppp/8/8 w KQkq -\n", r"bad\.epd:1"),
        ("two_kings.epd", "4k3/8/8/8/8/8/8/K3K3 w - - 0 1\n", "not a legal position: too many kings"),
        ("mate.epd", "7k/5KQ1/8/8/8/8/8/8 b - - 0 1\n", "the game is over"),
        ("fifty.epd", "4k3/8/8/8/8/8/4P3/4K3 w - - 100 80\n", "the game is over"),
        ("long.epd", "4k3/8/8/8/8/8/4P3/4K3 w - - 0 10000\n", "move number 10000 is larger than 9999"),
        ("null.pgn", '[Event "x"]\n\n1. e4 -- 2. d4 *\n', r"null\.pgn:1: .*null move"),
        ("three.pgn", '[Event "x"]\n\n1. Nf3 Nf6 2. Ng1 Ng8 3. Nf3 Nf6 4. Ng1 Ng8 *\n', "the game is over"),
        ("binary.epd", f"\0\1\0\0{chess.STARTING_FEN}", "no text: unpack it, or save it as UTF-8"),
        ("book.pgn.bz2", "BZh9", r"compressed \(bzip2\)"),
        ("empty.epd", "\n# nothing\n", "no openings"),
        ("illegal.pgn", '[Event "x"]\n\n1. e5 *\n', r"illegal\.pgn:1: .*illegal .* \(game 1, \? – \?\)"),
        ("variant.pgn", '[Event "x"]\n[Variant "Atomic"]\n\n1. e4 *\n', "Atomic"),
        ("empty.pgn", "\n% nothing\n*\n", "no openings"),
        ("960.epd", "1k5r/8/8/8/8/8/8/1K5R w Hh - 0 1\n", r"960\.epd:1: castling .* that of Chess960"),
        ("book.doc", "anything", r"\.epd, \.fen, \.txt or \.pgn .*\.bin"),
        ("short.bin", "x", r"short\.bin is no Polyglot book"),
    ],
)
def test_unusable_files_are_refused_with_the_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, text: str, message: str
) -> None:
    with pytest.raises(OpeningError, match=message):
        sequential(book(tmp_path, name, text), 1)
    assert not caplog.records  # The message is the exception's alone.


KINGS = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"


@pytest.mark.parametrize(
    "text",
    [
        '[Event "c"]\n[Result "*"]\n\n\n1. b3 e5 2. Bb2 Nc6 *\n',
        '[Event "c"]\n\n[Result "*"]\n\n1. b3 e5 2. Bb2 Nc6 *\n',
        '[Event "c"]\n\n\n\n[Result "*"]\n1. b3 e5 2. Bb2 Nc6 *\n',
        '[Event "c"]\n[Result "*"]\n \t\n1. b3 e5\n\n\n2. Bb2\n\nNc6\n\n*\n',
        '  [Event "c"]\n\t[Result "*"]\n\n  1. b3 e5 2. Bb2 Nc6 *\n',
        '[Event "c"] [Result "*"]\n\n1. b3 e5 2. Bb2 Nc6 *\n',
        '[ Event  "c" ][Result"*"] 1. b3 e5 2. Bb2 Nc6 *\n',
        '[Event "c"]\n\n{a\n\n[Event "d"]\n\n1-0 (} 1. b3 {[%clk 0:01]} e5 2. Bb2 ; [Event "d"] *\nNc6 *\n',
        '% [Event "d"]\n[Event "c"]\n\n1.b3 e5 (1... d5\n\n2. Bb2 *) 2.Bb2!? $1 Nc6\n',
        '[Event "c"]\n\n1. b3 (1. Rh5 {illegal}) 1... e5 2. Bb2 Nc6 1/2-1/2\n',
        '[Event "c"]\n\n1. b2b3 e7e5 2. c1b2 b8c6 1-0 {White wins}\n',
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_pgn_game_is_read_in_every_layout(tmp_path: Path, text: str, end: str) -> None:
    path = tmp_path / "book.pgn"
    other = '[Event "next"]\n[FEN "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"]\n\n*\n'
    path.write_bytes((text + other).replace("\n", end).encode())
    first, second, third = sequential(str(path), 3)
    assert first == third == Opening("c", None, ("b2b3", "e7e5", "c1b2", "b8c6"))
    assert second == Opening("next", KINGS)


def test_games_without_moves_or_results_are_divided_by_their_events(tmp_path: Path) -> None:
    text = "".join(f'[Event "{name}"]\n[FEN "{KINGS}"]\n\n' for name in "abc")
    assert [opening.name for opening in sequential(book(tmp_path, "a.pgn", text), 3)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[Event "x"]\n\n*\n', "neither moves nor a FEN tag"),
        ('[Event "x"]\n[SetUp "1"]\n\n1. e4 *\n', "no FEN tag"),
        ('[Event "x"]\n\n2. Nf3 Nc6 *\n', "begins with move 2"),
        ('[Event "x"]\n[Variant "Chess960"]\n\n1. e4 *\n', "no FEN tag"),
        (f'[FEN "{KINGS}"\n\n1. e4 *\n', "is not a tag"),
        (f'[FEN "{KINGS}"]\n\n[FEN "{chess.STARTING_FEN}"]\n\n*\n', "two FEN tags"),
        ('[Event "x"]\n\n1. Sf3 Sf6 *\n', "'Sf3' is not a move"),
        ('[Event "x"]\n\n1. e4 Ng9 *\n', "'Ng9' is not a move"),
        ('[Event "x"]\n\n1. e4 {open\n', "no closing brace"),
        ('[Event "x"]\n[FEN "?"]\n\n*\n', "expected"),
    ],
)
def test_a_game_that_is_not_fully_read_is_not_played(tmp_path: Path, text: str, message: str) -> None:
    path = book(tmp_path, "bad.pgn", "\n\n" + text)
    with pytest.raises(OpeningError, match=rf"bad\.pgn:3: .*{message}"):
        sequential(path, 1)


@pytest.mark.parametrize("order", ["sequential", "random"])
def test_unusable_openings_are_reported_once_and_skipped(tmp_path: Path, order: Order) -> None:
    path = book(tmp_path, "mixed.epd", "rubbish\n" * 7 + EPD)
    told: list[str] = []
    openings = read_openings(OpeningSettings(path, order), 9, seed=1, report=told.append)
    assert len(set(openings)) == 3
    assert len(set(told)) == len(told) == 6
    assert "mixed.epd:1: " in "".join(sorted(told)) or order == "random"
    assert "2 more" in told[-1]


@pytest.mark.parametrize(
    ("rest", "counters", "name"),
    [
        ("", "0 1", ""),
        (";", "0 1", ""),
        (" 3 7", "3 7", ""),
        (" 3 7;", "3 7", ""),
        (" 3", "3 1", ""),
        (' hmvc 3; fmvn 7; c0 "a; id b"; id "named"', "3 7", "named"),
        (' 3 7 bm Rh5; pv e4; c0 "by hand"; id "named";', "3 7", "named"),
        (" id plain name; ce -8", "0 1", "plain name"),
        (" 3 7 ;D1 20 ;D2 400", "3 7", ""),
        (" - -", "0 1", ""),
    ],
)
@pytest.mark.parametrize("suffix", [".epd", ".EPD", ".fen", ".txt"])
def test_positions_are_read_in_every_layout(
    tmp_path: Path, rest: str, counters: str, name: str, suffix: str
) -> None:
    before = "\ufeff# comment\r\n; comment\r\n% comment\r\n// comment\r\n\r\n"
    path = tmp_path / f"book{suffix}"
    path.write_bytes(f"{before}  4k3/8/8/8/8/8/4P3/4K3\tw - -{rest} \r\n".encode())
    (opening,) = sequential(str(path), 1)
    assert opening == Opening(name or f"book{suffix}:6", f"4k3/8/8/8/8/8/4P3/4K3 w - - {counters}")


@pytest.mark.parametrize("castling", ["HAha", "KQkq", "AHah", "HQha"])
@pytest.mark.parametrize("chess960", [False, True])
def test_castling_is_read_as_shredder_fen_and_x_fen(tmp_path: Path, castling: str, chess960: bool) -> None:
    line = f"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w {castling} - 0 1"
    (opening,) = sequential(book(tmp_path, "a.fen", line), 1, chess960=chess960)
    assert opening.fen == chess.STARTING_FEN


def test_a_chess960_position_keeps_its_rights(tmp_path: Path) -> None:
    for castling in ("GCgc", "KQkq"):
        line = f'1brqknrb/1ppppppp/8/8/8/8/1PPPPPPP/1BRQKNRB w {castling} - id "x";'
        (opening,) = sequential(book(tmp_path, "a.epd", line), 1, chess960=True)
        assert (
            opening.board(chess960=True).castling_rights
            == chess.BB_C1 | chess.BB_G1 | chess.BB_C8 | chess.BB_G8
        )


def test_a_file_that_is_not_there_is_named() -> None:
    for name in ("missing.epd", "missing.pgn", "missing.bin", "-"):
        with pytest.raises(OpeningError, match=name if name != "-" else "standard input"):
            sequential(name, 1)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Games as PGN, read back by python-chess."""

import io

import chess
import chess.pgn

from engine.apps.games.pgn import comment, pgn_text
from engine.apps.games.record import GameRecord, MoveRecord, Reason

PLAYERS = ("first", 'se"cond'), ("100 nodes", "60")


def read(text: str) -> chess.pgn.Game:
    game = chess.pgn.read_game(io.StringIO(text))
    assert game is not None
    assert not game.errors
    return game


def test_a_game_is_read_back_with_everything_said_about_it() -> None:
    record = GameRecord(
        number=3,
        pair=1,
        white=1,
        black=0,
        result="0-1",
        reason=Reason.CHECKMATE,
        opening="Fool's\nopening",
        opening_moves=("f2f3", "e7e5"),
        moves=(
            MoveRecord(
                "g2g4", 1.2345, score_cp=-31, depth=12, selective_depth=20, nodes=400, clock_ms=58910.0
            ),
            MoveRecord("d8h4", 0.01, mate=1, depth=1),
        ),
        started="2026-01-02T03:04:05+00:00",
    )
    text = pgn_text(record, *PLAYERS, event="my match")
    assert text.endswith("0-1\n\n")
    game = read(text)
    assert [move.uci() for move in game.mainline_moves()] == ["f2f3", "e7e5", "g2g4", "d8h4"]
    comments = [node.comment for node in game.mainline()]
    assert comments == [
        "book",
        "book",
        "-0.31/12 1.234s, n=400, sd=20, tl=58.910s",
        "+M1/1 0.010s, Black mates",
    ]
    assert dict(game.headers) == {
        "Event": "my match",
        "Site": "?",
        "Date": "2026.01.02",
        "UTCDate": "2026.01.02",
        "UTCTime": "03:04:05",
        "Round": "2.2",
        "White": "se'cond",
        "Black": "first",
        "Result": "0-1",
        "GameNumber": "4",
        "Opening": "Fool's opening",
        "WhiteTimeControl": "60",
        "BlackTimeControl": "100 nodes",
        "PlyCount": "4",
        "Termination": "normal",
    }


def test_chess960_castling_and_the_start_position_survive() -> None:
    board = chess.Board.from_chess960_pos(200)
    record = GameRecord(0, 0, 0, 1, "1-0", Reason.ILLEGAL_MOVE, "x", "h9h9", board.fen(), True)
    game = read(pgn_text(record, *PLAYERS, event="e"))
    assert game.board().chess960
    assert game.board().fen() == board.fen()
    assert game.headers["Termination"] == "rules infraction"
    assert "Black makes an illegal move: h9h9" in game.comment

    fen = "4k3/8/8/8/8/8/8/1R2K2R w HB - 0 1"
    castles = GameRecord(
        0, 0, 0, 1, "1/2-1/2", Reason.MOVE_LIMIT, "x", "", fen, True, (), (MoveRecord("e1b1"),)
    )
    game = read(pgn_text(castles, *PLAYERS, event="e"))
    end = game.end().board()
    assert end.king(chess.WHITE) == chess.C1


def test_comment_omits_unknown_values() -> None:
    assert comment(MoveRecord("e2e4", 0.5)) == "0.500s"
    assert comment(MoveRecord("e2e4", 0.5, mate=-2, depth=9)) == "-M2/9 0.500s"


def test_every_end_is_explained() -> None:
    for reason in Reason:
        for result in ("1-0", "0-1", "1/2-1/2"):
            record = GameRecord(0, 0, 0, 1, result, reason, "x")
            assert record.explanation
            assert read(pgn_text(record, *PLAYERS, event="e")).headers["Result"] == result
    lost = GameRecord(0, 0, 0, 1, "1-0", Reason.TIME, "x")
    drawn = GameRecord(0, 0, 0, 1, "1/2-1/2", Reason.TIME, "x", "the opponent cannot mate")
    assert lost.explanation == "Black loses on time"
    assert drawn.explanation == "draw by time forfeit: the opponent cannot mate"

# SPDX-License-Identifier: GPL-3.0-or-later
"""Won endings make progress: with the included tablebases, and without any."""

from collections.abc import Iterator
from random import Random

import chess
import chess.syzygy
import pytest

from engine.options import Options
from engine.search.limits import Limits
from engine.search.session import Session
from engine.search.tablebases import INCLUDED, NONE

SOLVED = ("Q", "R", "BB", "BN", "QR", "RR", "RB", "NQ")
"""Pieces against a bare king that the search solves without tables."""


@pytest.fixture(scope="module")
def tables() -> Iterator[chess.syzygy.Tablebase]:
    with chess.syzygy.open_tablebase(str(INCLUDED)) as opened:
        yield opened


def won_position(pieces: str, tables: chess.syzygy.Tablebase, random: Random, bare: str = "") -> chess.Board:
    """A random position that the tables know as won for the side to move, of either colour."""
    while True:
        board = chess.Board(None)
        men = f"K{pieces}k{bare.lower()}"
        for square, symbol in zip(random.sample(range(64), len(men)), men, strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(symbol))
        if board.is_valid() and tables.probe_wdl(board) == 2:
            return board if random.random() < 0.5 else board.mirror()


def session(**options: object) -> Session:
    return Session(Options(hash=1, tree_memory=16).changed(**options), in_process=True)


def mates(fen: str, nodes: int, tables: chess.syzygy.Tablebase, playing: Session) -> bool:
    """Play a position against the longest defence by the tables. Return True if it ends in mate."""
    board = chess.Board(fen)

    def holds_out(move: chess.Move) -> int:
        board.push(move)
        draw = board.is_insufficient_material() or board.is_stalemate() or tables.probe_wdl(board) <= 0
        plies = 1000 if draw else tables.probe_dtz(board)
        board.pop()
        return plies

    moves: list[str] = []
    while not board.is_game_over(claim_draw=True):
        playing.set_position(fen, moves)
        best = playing.search(Limits(nodes=nodes)).best_move
        assert best is not None
        board.push_uci(best)
        moves.append(best)
        if not board.is_game_over(claim_draw=True):
            reply = max(board.legal_moves, key=holds_out)
            board.push(reply)
            moves.append(reply.uci())
    return board.is_checkmate()


@pytest.mark.parametrize("pieces", SOLVED)
def test_distances_to_mate_agree_with_the_tables(pieces: str, tables: chess.syzygy.Tablebase) -> None:
    random, playing = Random(5), session(syzygy_path=NONE)
    compared = 0
    for _ in range(60):
        board = won_position(pieces, tables, random)
        playing.set_position(board.fen())
        line = playing.search(Limits(nodes=2)).lines[0]
        if line.tablebase is None:
            continue  # The search has the mate already, or a piece is lost.
        compared += 1
        further = line.tablebase_plies - tables.probe_dtz(board)
        if pieces in ("Q", "R"):
            assert further == 0, board.fen()
        elif pieces in ("BB", "BN"):
            assert further == 1, board.fen()  # These tables round to full moves.
        else:
            assert further >= 0, board.fen()  # The tables may give a piece away.
    assert compared > 40


@pytest.mark.integration
@pytest.mark.parametrize("ending", ["Q", "R", "BB", "BN"])
def test_a_bare_king_is_mated_without_tables(ending: str, tables: chess.syzygy.Tablebase) -> None:
    random, playing = Random(7), session(syzygy_path=NONE)
    fens = [won_position(ending, tables, random).fen() for _ in range(4)]
    assert all(mates(fen, 30, tables, playing) for fen in fens)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("ending", "bare"), [("Q", ""), ("R", ""), ("BN", ""), ("P", ""), ("Q", "R"), ("R", "N")]
)
def test_won_endings_are_won_by_default(ending: str, bare: str, tables: chess.syzygy.Tablebase) -> None:
    random, playing = Random(9), session()
    fens = [won_position(ending, tables, random, bare).fen() for _ in range(4)]
    assert all(mates(fen, 30, tables, playing) for fen in fens)


def test_a_level_has_neither_tables_nor_solved_endings() -> None:
    playing = session(limit_strength=True, elo=1500)
    playing.set_position("8/8/8/8/2k5/8/8/K2R4 w - - 0 1")
    report = playing.search(Limits(nodes=20), play=True)
    assert report.tablebase_hits == 0 and report.lines[0].tablebase is None

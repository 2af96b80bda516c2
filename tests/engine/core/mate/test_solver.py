# SPDX-License-Identifier: GPL-3.0-or-later
"""Mates and proofs that there is none, against a plain search and against tablebases."""

import threading
from collections import Counter
from collections.abc import Sequence
from random import Random

import chess
import pytest

from engine._core import Game, MateSolver, Tablebases
from tests.engine.core.mate.brute_force import is_mate_line, shortest_mate
from tests.engine.core.syzygy.positions import random_position
from tests.paths import TABLES

SMALL = ("KQvK", "KRvK", "KRRvK", "KQRvK", "KQPvK", "KPPvK", "KQNvKP", "KRPvKP", "KNPPvKP", "KQvKR")
FORCED = (
    ("rnb5/pp1p2k1/6p1/2p2p2/PbP2P2/6P1/Q2NK3/5BNR w - - 1 23", 4),
    ("rn3b1r/p3p1pp/1p3k2/3Q4/PP2n3/3B4/R1P2PPP/2B1K1NR w K - 0 14", 4),
    ("3qk1n1/4b1pr/r1p2p1p/4p3/PP1nb3/6P1/2NKBP1P/2B1R3 b - - 1 22", 3),
    ("5r1k/p1p2p1p/2qp1np1/b2Np3/2P4P/5QP1/PB1PNP2/2R1K2R w K - 7 18", 2),
)


def solved(game: Game, moves: int, root_moves: Sequence[str] = (), *, positions: int = 1000) -> MateSolver:
    """Return a finished search for a mate, run in slices of `positions`."""
    solver = MateSolver(game, moves, root_moves)
    while not solver.run(positions):
        pass
    return solver


def game_of(board: chess.Board) -> Game:
    """Return the game of a board, with its moves."""
    game = Game(board.root().fen(), board.chess960)
    for move in board.move_stack:
        game.push_uci(move.uci())
    return game


def compare(board: chess.Board, moves: int) -> int:
    """Return the moves of the shortest mate, which the solver must find, too; 0 if there is none."""
    wanted = shortest_mate(board, moves)
    solver = solved(game_of(board), moves, positions=100)
    assert (solver.mate, solver.excluded) == (wanted, wanted - 1 if wanted else moves), board.fen()
    assert is_mate_line(board, solver.line, wanted) if wanted else not solver.line, board.fen()
    return wanted


@pytest.mark.parametrize(("fen", "moves"), FORCED)
def test_a_mate_is_found_with_its_line(fen: str, moves: int) -> None:
    solver = solved(Game(fen), moves + 2)
    assert solver.positions <= 24_000
    assert (solver.mate, solver.excluded, len(solver.line)) == (moves, moves - 1, 2 * moves - 1)
    board = chess.Board(fen)
    for move in solver.line:
        board.push_uci(move)
    assert board.is_checkmate()


@pytest.mark.integration
def test_small_positions_equal_a_plain_search() -> None:
    random = Random(1)
    found: Counter[int] = Counter()
    for number in range(240):
        board = random_position(SMALL[number % len(SMALL)], random)
        found[compare(board, 3 if len(board.piece_map()) < 5 else 2)] += 1
    assert min(found[moves] for moves in (0, 1, 2, 3)) > 1


def mate_position(random: Random, moves: int) -> chess.Board:
    """Return a small random position with a mate in at most `moves` moves."""
    while True:
        board = random_position(random.choice(("KQvK", "KRRvK", "KQRvK")), random)
        if solved(game_of(board), moves).mate:
            return board


@pytest.mark.integration
def test_the_50_move_counter_decides_as_in_a_plain_search() -> None:
    random = Random(2)
    equal: Counter[bool] = Counter()
    for _ in range(30):
        board = mate_position(random, 3)
        mate = shortest_mate(board, 3)
        board.halfmove_clock = random.randrange(95, 101)
        board.fullmove_number = 80
        equal[compare(board, 3) == mate] += 1  # Otherwise the draw comes first.
    assert min(equal.values()) > 5


def test_repetitions_in_the_game_decide_as_in_a_plain_search() -> None:
    """The first move of the mate leads to a position that has occurred twice, so it draws."""
    random = Random(3)
    equal: Counter[bool] = Counter()
    while equal.total() < 30:
        board = mate_position(random, 2)
        (move, *reply) = solved(game_of(board), 2).line
        if reply and (cycle := there_and_back(board, chess.Move.from_uci(move), random)):
            for again in (*cycle, *cycle):
                board.push(again)
            equal[compare(board, 2) == 2] += 1
    assert min(equal.values()) > 5


def there_and_back(board: chess.Board, move: chess.Move, random: Random) -> list[chess.Move]:
    """Return a move, a reply, and the moves that undo both; empty if these are not legal."""
    after = board.copy()
    if after.is_capture(move):
        return []
    after.push(move)
    there = [move, random.choice(list(after.legal_moves))]
    if after.is_capture(there[1]):
        return []
    after.push(there[1])
    back = [chess.Move(each.to_square, each.from_square) for each in there]
    for each in back:
        if each not in after.legal_moves:
            return []
        after.push(each)
    return [*there, *back]


@pytest.mark.integration
@pytest.mark.parametrize("chess960", [False, True])
def test_positions_of_games_equal_a_plain_search(chess960: bool) -> None:
    """Weak games have mates with many pieces, castling, en passant and promotions."""
    random = Random(4)
    found: Counter[int] = Counter()
    while found[1] < 12 or found[2] < 3 or found[0] < 20:
        board = chess.Board.from_chess960_pos(random.randrange(960)) if chess960 else chess.Board()
        for _ in range(random.randrange(20, 90)):
            if board.is_game_over():
                break
            board.push(random.choice(list(board.legal_moves)))
        mate = 0 if board.is_game_over() else solved(game_of(board), 2).mate
        if mate or (found[0] < 20 and not board.is_game_over()):
            found[compare(board, 2)] += 1


@pytest.mark.parametrize(
    ("fen", "chess960", "move"),
    [
        ("6R1/8/8/4B3/8/8/8/R3K2k w Q - 0 1", False, "e1c1"),
        ("6R1/8/8/4B3/8/8/8/R3K2k w Q - 0 1", True, "e1a1"),
        ("2k1K3/8/8/2Pp4/1R6/8/2R5/8 w - d6 0 1", False, "c5d6"),
        ("6k1/P4ppp/8/8/8/8/8/K7 w - - 0 1", False, "a7a8r"),
    ],
)
def test_special_moves_mate(fen: str, chess960: bool, move: str) -> None:
    """Castling, en passant and promotions."""
    assert compare(chess.Board(fen, chess960=chess960), 1) == 1
    solver = solved(Game(fen, chess960), 1, [move])
    assert (solver.mate, solver.line) == (1, [move])


@pytest.mark.parametrize("name", ["KQvK", "KRvK"])
def test_the_shortest_mate_equals_the_tablebases(name: str) -> None:
    """Without captures and pawns the distance to zeroing is that to mate."""
    tables = Tablebases([TABLES])
    random = Random(5)
    for _ in range(8):
        board = random_position(name, random)
        game = Game(board.fen())
        plies = tables.probe_dtz(game)
        if plies is None or plies <= 0:
            continue
        moves = (plies + 1) // 2
        if moves <= 11:
            solver = solved(game, moves, positions=100_000)
            assert (solver.mate, len(solver.line)) == (moves, 2 * moves - 1), board.fen()


def test_root_moves_limit_the_first_move() -> None:
    game = Game("k7/8/1K6/8/8/8/8/7R w - - 0 1")
    assert solved(game, 2).line == ["h1h8"]
    assert solved(game, 1, ["h1h2", "h1g1"]).mate == 0
    solver = solved(game, 3, ["h1h2", "b6a6"])
    assert (solver.mate, solver.line) == (2, ["h1h2", "a8b8", "h2h8"])
    assert solved(game, 1, ["h1h8", "b6a6"]).mate == 1


def test_a_side_with_a_bare_king_has_no_mate_of_any_length() -> None:
    for fen in ("8/8/8/3k4/8/8/8/KQ6 b - - 0 1", "8/8/8/3k4/8/8/8/KB6 w - - 0 1"):
        solver = MateSolver(Game(fen), 10**6)
        assert solver.run(0) and not solver.mate and solver.excluded == 127


def test_the_table_stays_below_its_limit() -> None:
    game = Game("r1bq1rk1/pp2bppp/2n1pn2/2pp4/3P1B2/2PBPN2/PP1N1PPP/R2QK2R w KQ - 0 9")
    most = 2 << 20
    solver = MateSolver(game, 8, table_bytes=most)
    assert not solver.run(3_000_000)
    assert most // 3 < solver.table_bytes <= most
    assert solver.table_fill > 900
    assert solver.excluded >= 3
    assert 3_000_000 <= solver.positions < 3_100_000


def test_a_small_table_changes_no_result() -> None:
    for fen, moves in FORCED:
        solver = MateSolver(Game(fen), moves, table_bytes=0)
        while not solver.run(100):
            pass
        assert (solver.mate, len(solver.line)) == (moves, 2 * moves - 1)


@pytest.mark.integration
def test_other_threads_run_during_the_search() -> None:
    solver = MateSolver(Game(), 20)
    thread = threading.Thread(target=solver.run, args=(5_000_000,))
    thread.start()
    steps = 0
    while thread.is_alive():
        steps += 1
    assert steps > 100


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        MateSolver(Game(), 0)
    with pytest.raises(ValueError, match="e2e5"):
        MateSolver(Game(), 1, ["e2e5"])
    with pytest.raises(ValueError, match="in check"):
        MateSolver(Game("8/8/8/8/8/4k3/4Q3/K7 w - - 0 1", allow_opponent_check=True), 1)

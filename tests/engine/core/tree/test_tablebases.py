# SPDX-License-Identifier: GPL-3.0-or-later
"""Tablebases in the search: values of leaves, and the root's moves."""

from pathlib import Path
from random import Random
from shutil import copyfile

import numpy as np
import pytest

from engine._core import Batch, Game, Tablebases
from tests.engine.core.syzygy.positions import random_position
from tests.engine.core.syzygy.table_writer import write_table
from tests.engine.core.tree.search_helpers import children_by_move, game, new_tree, proof_of, search
from tests.paths import TABLES

QUEEN = "8/8/8/8/8/2k5/8/KQ6 w - - {} 1"
"""Won; the next capture, or mate, comes in 11 plies."""

KNIGHT = "8/8/8/3k4/8/8/8/KBN5 w - - {} 1"
"""Won; mate comes in 58 plies."""

AGAINST_ROOK = "8/8/4k3/K7/4r3/8/5Q2/8 w - - {} 1"
"""Won; the next capture, or mate, comes in 47 plies, so later by other moves."""

ROOK_ENDING = "8/8/2k5/8/8/3KR3/4P3/7r w - - 0 1"
"""Five men."""


@pytest.fixture(scope="module")
def tables() -> Tablebases:
    return Tablebases([TABLES])


@pytest.fixture
def values_only(tmp_path: Path) -> Tablebases:
    for path in TABLES.glob("*.rtbw"):
        copyfile(path, tmp_path / path.name)
    return Tablebases([tmp_path])


def after(position: Game, *moves: str) -> Game:
    played = position.copy()
    for move in moves:
        played.push_uci(move)
    return played


def distance_after(tables: Tablebases, position: Game, move: str) -> int:
    """DTZ of a move for the one who makes it, the move included."""
    played = after(position, move)
    if played.result()[1] == "checkmate":
        return 1
    if played.rule50 == 0:
        wdl = tables.probe_wdl(played)
        assert wdl is not None
        return -wdl // 2
    dtz = tables.probe_dtz(played)
    assert dtz is not None
    return 0 if dtz == 0 else -dtz - (1 if dtz > 0 else -1)


def shortest_ways(tables: Tablebases, position: Game) -> list[str]:
    """The winning moves that reach a capture, a pawn move or mate first."""
    distances = {move: distance_after(tables, position, move) for move in position.legal_moves()}
    shortest = min(plies for plies in distances.values() if plies > 0)
    return [move for move, plies in distances.items() if plies == shortest]


# -- leaves --------------------------------------------------------------------------------------------------


def test_captures_into_the_tables_are_proven(tables: Tablebases) -> None:
    random = Random(1)
    proven = 0
    for name in ("KQRvKR", "KRPvKB", "KPPvKP", "KBNvKN", "KRPvKR"):
        for _ in range(20):
            root = Game(random_position(name, random).fen())
            tree = new_tree(root, tablebases=tables)
            search(tree, 300)
            for move, child in children_by_move(tree).items():
                played = after(root, move)
                if child.visits == 0 or played.men == root.men or played.result()[0] != "undecided":
                    continue
                wdl = tables.probe_wdl(played)
                assert wdl is not None
                proof = proof_of(child)
                assert (proof.value, proof.by_tables) == (-wdl // 2, wdl != 0), (root.fen(), move)
                assert child.evaluation.q == -wdl // 2
                assert child.evaluation.d == (wdl == 0)
                proven += 1
    assert proven > 20


def test_hits_are_counted(tables: Tablebases) -> None:
    with_tables, without = new_tree(game(ROOK_ENDING), tablebases=tables), new_tree(game(ROOK_ENDING))
    search(with_tables, 2000)
    search(without, 2000)
    assert with_tables.root_info().tablebase_hits > 0
    assert without.root_info().tablebase_hits == 0
    with_tables.set_position(game())
    search(with_tables, 500)
    assert with_tables.root_info().tablebase_hits == 0


def test_without_capture_or_pawn_move_the_clock_would_count(tables: Tablebases) -> None:
    """After the king's move nobody can castle, and the tables know the position, but not with this clock."""
    tree = new_tree(game("4k3/8/8/8/8/8/8/R3K3 w Q - 5 1"), tablebases=tables)
    search(tree, 500)
    assert tree.root_info().tablebase_hits == 0
    king_move = children_by_move(tree)["e1e2"]
    assert king_move.visits > 0 and king_move.proof is None


def test_a_mate_is_better_than_a_win_by_tables(tables: Tablebases) -> None:
    tree = new_tree(game("7k/8/6K1/8/8/8/p7/RQ6 w - - 0 1"), tablebases=tables)
    search(tree, 3000)
    line = tree.lines(1)[0]
    assert (line.moves, line.by_tables) == (["b1b8"], None)
    assert line.proof is not None and (line.proof.plies, line.proof.by_tables) == (1, False)
    capture = proof_of(children_by_move(tree)["a1a2"])
    assert (capture.value, capture.by_tables) == (1, True)


def test_being_mated_is_worse_than_a_loss_by_tables(tables: Tablebases) -> None:
    """Black is lost, but only promoting is answered by mate at once."""
    tree = new_tree(game("7k/5K2/6R1/8/8/8/7p/R7 b - - 0 1"), tablebases=tables)
    search(tree, 20000)
    lines = tree.lines(10)
    assert lines[0].moves[0] == "h8h7"
    proofs = [line.proof for line in lines if line.proof is not None]
    assert [(proof.value, proof.by_tables) for proof in proofs] == [(-1, True), *[(-1, False)] * 4]


def test_a_win_by_tables_moves_up_and_says_how_far_it_is(tables: Tablebases) -> None:
    tree = new_tree(game("8/8/8/4k3/8/8/4P3/4KR1r w - - 0 1"), tablebases=tables)
    search(tree, 500)
    assert (proof_of(tree.root_info()).value, proof_of(tree.root_info()).by_tables) == (1, True)
    line = tree.lines(1)[0]
    assert line.moves == ["f1h1"]
    assert line.by_tables is not None
    assert (line.by_tables.value, line.by_tables.plies) == (1, 1)


def test_the_search_continues_where_tables_ended_a_line(tables: Tablebases) -> None:
    root = game("8/8/8/4k3/8/8/4P3/4KR1r w - - 0 1")
    tree = new_tree(root, tablebases=tables)
    search(tree, 500)
    tree.set_position(after(root, "f1h1"))
    search(tree, 200)
    assert tree.root_info().visits >= 200
    assert tree.root_info().proof is None


def test_looking_ahead_leaves_known_positions_out(tables: Tablebases) -> None:
    root = game("8/8/8/1q6/1k6/1r6/8/K1R5 w - - 0 1")  # Five men: what is sent has as many.
    tree = new_tree(root, tablebases=tables)
    batch = Batch(64)
    sent = 0
    for _ in range(20):
        tree.collect(batch, 4, ahead=60)
        men = np.unpackbits(batch.positions[:, :96], axis=1).sum(axis=1)
        sent += len(men)
        assert (men == 5).all()
        tree.apply_random(batch)
    assert sent > 200
    assert tree.root_info().tablebase_hits > 0


@pytest.mark.parametrize(
    ("wdl", "by_rule", "without"), [(3, 0, -1), (1, 0, 1), (4, -1, -1), (0, 1, 1), (2, 0, 0)]
)
def test_the_fifty_move_rule_makes_draws_of_cursed_wins(
    wdl: int, by_rule: int, without: int, tmp_path: Path
) -> None:
    """wdl: what a table of five men has for the side to move, from 0 to 4; then what the capture is worth."""
    write_table(tmp_path / "KRBvKN.rtbw", Random(1), only_value=wdl)
    root = game("7n/8/3k4/8/8/2p5/1B6/K3R3 w - - 0 1")
    for rule, value in ((True, by_rule), (False, without)):
        tree = new_tree(root, tablebases=Tablebases([tmp_path]), syzygy_50_move_rule=rule)
        tree.set_root_moves(["b2c3"])
        search(tree, 20)
        proof = proof_of(children_by_move(tree)["b2c3"])
        assert (proof.value, proof.by_tables) == (value, value != 0)


# -- the root ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [0, 50, 90])
def test_root_moves_keep_the_value(clock: int, tables: Tablebases) -> None:
    random = Random(clock)
    for name in ("KQvKR", "KRvK", "KPvKP", "KBNvK", "KRPvK", "KPvK", "KQvKP"):
        # These wins have one distance, and only its shortest moves are kept.
        to_mate = name in ("KRvK", "KBNvK")
        for _ in range(15):
            board = random_position(name, random)
            board.halfmove_clock = clock
            root = Game(board.fen())
            tree = new_tree(root, tablebases=tables)
            distances = {move: distance_after(tables, root, move) for move in root.legal_moves()}
            wins = {move: plies for move, plies in distances.items() if plies > 0}
            draws = [move for move, plies in distances.items() if plies == 0]
            safe = [move for move, plies in wins.items() if plies + clock < 100]
            if safe and not to_mate:
                expected = safe
            elif wins:
                expected = [move for move, plies in wins.items() if plies == min(wins.values())]
            elif draws:
                expected = draws
            elif all(-2 * plies + clock < 100 for plies in distances.values()):
                expected = list(distances)
            else:
                continue
            assert tree.root_moves() == expected, board.fen()


def test_a_known_root_is_not_looked_up_in_the_tree(tables: Tablebases, values_only: Tablebases) -> None:
    root = game("8/8/4k3/8/8/3K4/4P3/8 w - - 0 1")
    by_distance, by_value = new_tree(root, tablebases=tables), new_tree(root, tablebases=values_only)
    moves = len(root.legal_moves())
    for tree in (by_distance, by_value):
        assert tree.root_info().tablebase_hits == moves
        search(tree, 500)
    assert by_distance.root_info().tablebase_hits == moves
    assert by_value.root_info().tablebase_hits > moves


def test_values_alone_limit_the_root_as_well(values_only: Tablebases) -> None:
    root = game("8/8/4k3/8/8/3K4/4P3/8 w - - 0 1")
    winning = [move for move in root.legal_moves() if values_only.probe_wdl(after(root, move)) == -2]
    tree = new_tree(root, tablebases=values_only)
    assert 0 < len(winning) < len(root.legal_moves())
    assert tree.root_moves() == winning
    search(tree, 20)
    line = tree.lines(1)[0]
    assert line.by_tables is not None and line.by_tables.value == 1


@pytest.mark.parametrize(
    ("fen", "clock", "value"),
    [(QUEEN, 0, 1), (QUEEN, 89, 1), (QUEEN, 90, 0), (KNIGHT, 42, 1), (KNIGHT, 43, 0)],
)
def test_win_must_precede_the_fifty_move_rule(fen: str, clock: int, value: int, tables: Tablebases) -> None:
    tree = new_tree(game(fen.format(clock)), tablebases=tables)
    search(tree, 50)
    line = tree.lines(1)[0]
    assert line.by_tables is not None and line.by_tables.value == value


def test_when_time_runs_short_only_the_shortest_way_is_searched(tables: Tablebases) -> None:
    for clock, some in ((0, False), (52, True)):
        root = game(AGAINST_ROOK.format(clock))
        moves = new_tree(root, tablebases=tables).root_moves()
        assert (moves == shortest_ways(tables, root)) is some


def test_after_a_repetition_only_the_shortest_way_is_searched(tables: Tablebases) -> None:
    root = game(AGAINST_ROOK.format(0))
    there_and_back = ("f2f8", "e4d4", "f8f2", "d4e4")
    free = new_tree(root, tablebases=tables)
    repeated = new_tree(after(root, *there_and_back), tablebases=tables)
    assert repeated.root_moves() == shortest_ways(tables, root)
    assert len(free.root_moves()) > len(repeated.root_moves())


def test_a_move_that_repeats_is_not_among_many_winning_ones(tables: Tablebases) -> None:
    played = after(game("8/8/8/8/8/8/2k5/K5RR w - - 0 1"), "g1g8", "c2c3", "g8g7", "c3c2")
    assert "g7g8" in new_tree(game(played.fen()), tablebases=tables).root_moves()
    assert "g7g8" not in new_tree(played, tablebases=tables).root_moves()


@pytest.mark.parametrize(
    ("fen", "shortest"),
    [
        ("8/8/8/8/8/2k5/8/KQ6 w - - 0 1", True),
        ("8/8/8/8/8/2k5/8/KR6 w - - 0 1", True),
        ("8/8/8/3k4/8/8/8/KBN5 w - - 0 1", True),
        ("8/8/8/3k4/8/8/8/KBB5 w - - 0 1", True),
        ("8/8/8/3k4/8/8/8/KRB5 w - - 0 1", False),
        ("8/8/8/3k4/8/8/8/KQR5 w - - 0 1", False),
        ("8/8/8/3k4/8/8/P7/KQ6 w - - 0 1", False),
        ("8/8/8/3k4/7n/8/8/KQ6 w - - 0 1", False),
    ],
)
def test_only_the_shortest_way_is_searched_where_it_ends_in_mate(
    fen: str, shortest: bool, tables: Tablebases
) -> None:
    """With a man to spare, the shortest way to a capture may give it away."""
    root = game(fen)
    wins = [plies for move in root.legal_moves() if (plies := distance_after(tables, root, move)) > 0]
    kept = new_tree(root, tablebases=tables).root_moves()
    assert len(kept) == (wins.count(min(wins)) if shortest else len(wins))


def test_fast_play_takes_the_shortest_way(tables: Tablebases) -> None:
    for root in (game(QUEEN.format(0)), game(AGAINST_ROOK.format(0))):
        tree = new_tree(root, tablebases=tables, syzygy_fast_play=True)
        assert tree.root_moves() == shortest_ways(tables, root)


def test_root_moves_that_were_asked_for_are_chosen_from(tables: Tablebases) -> None:
    root = game("8/8/4k3/8/8/3K4/4P3/8 w - - 0 1")
    tree = new_tree(root, tablebases=tables)
    distances = {move: distance_after(tables, root, move) for move in root.legal_moves()}
    winning = [move for move, plies in distances.items() if plies > 0]
    drawing = [move for move, plies in distances.items() if plies == 0]
    tree.set_root_moves([winning[0], *drawing])
    assert tree.root_moves() == [winning[0]]
    tree.set_root_moves(drawing)
    assert tree.root_moves() == drawing
    search(tree, 100)
    assert set(children_by_move(tree)) == set(drawing)
    tree.set_root_moves([])
    assert tree.root_moves() == winning


@pytest.mark.parametrize("by_value", [False, True])
def test_lines_show_the_moves_that_are_not_searched_last(
    tables: Tablebases, values_only: Tablebases, by_value: bool
) -> None:
    chance = Random(1)
    seen = 0
    for _position in range(30):
        position = Game(random_position(chance.choice(("KQvK", "KRvK", "KQvKR", "KPvK")), chance).fen())
        tree = new_tree(position, tablebases=values_only if by_value else tables)
        search(tree, 60)
        kept, legal = tree.root_moves(), position.legal_moves()
        lines = tree.lines(500)
        shown = [line.moves[0] for line in lines]
        assert sorted(shown) == sorted(legal)
        assert sorted(shown[: len(kept)]) == sorted(kept)
        values = [line.by_tables.value for line in lines[len(kept) :] if line.by_tables is not None]
        assert values == sorted(values, reverse=True)
        assert len(values) == len(legal) - len(kept)
        assert [line.moves[0] for line in tree.lines(2)] == shown[:2]
        seen += len(kept) < len(legal)
    assert seen > 5


def test_lines_show_no_move_that_was_not_asked_for(tables: Tablebases) -> None:
    tree = new_tree(game("8/8/8/4k2r/8/3QK3/8/8 b - - 0 1"), tablebases=tables)
    tree.set_root_moves(["h5h4", "h5h3"])
    search(tree, 20)
    assert [line.moves[0] for line in tree.lines(9)] == ["h5h3", "h5h4"]


def test_tables_come_and_go_with_the_settings(tables: Tablebases) -> None:
    root = game(QUEEN.format(0))
    tree = new_tree(root, tablebases=tables)
    assert tree.root_moves() != root.legal_moves()
    params = tree.params
    params.tablebases = None
    tree.set_params(params)
    assert tree.root_moves() == root.legal_moves()


# -- without tables ------------------------------------------------------------------------------------------


def test_a_rook_is_promoted_to_when_a_queen_stalemates() -> None:
    tree = new_tree(game("8/k1P5/8/K7/8/8/8/8 w - - 0 1"), solves_endings=True)
    assert tree.root_moves() == ["c7c8r"]

# SPDX-License-Identifier: GPL-3.0-or-later
"""The option SyzygyPath: its folders, what is said of them, and what a search makes of the tables."""

import os
from pathlib import Path
from random import Random

import pytest

from engine._core import Game, Tablebases
from engine.options import Options
from engine.search.limits import Limits
from engine.search.report import Line, Report
from engine.search.session import Session
from engine.search.tablebases import description, folders_of, open_tablebases
from tests.engine.core.syzygy.positions import random_position
from tests.paths import TABLES

SMALL = Options(hash=1, tree_memory=16, minibatch_size=16)
QUEEN = "8/8/8/8/8/2k5/8/KQ6 w - - 0 1"


def session(path: str | Path, **options: object) -> tuple[Session, list[str]]:
    """A session without an evaluator, and what it says."""
    said: list[str] = []
    return Session(SMALL.changed(syzygy_path=str(path), **options), log=said.append, in_process=True), said


def best_line(fen: str, nodes: int = 300, **options: object) -> tuple[Line, Report]:
    playing, _ = session(TABLES, **options)
    playing.set_position(fen)
    report = playing.search(Limits(nodes=nodes))
    return report.lines[0], report


# -- folders -------------------------------------------------------------------------------------------------


def test_a_path_may_name_several_folders() -> None:
    assert folders_of(os.pathsep.join(("one", " two ", "", "three"))) == [
        Path("one"),
        Path("two"),
        Path("three"),
    ]
    assert folders_of("one;two") == [Path("one"), Path("two")]
    assert folders_of("~/tables") == [Path.home() / "tables"]
    assert folders_of("") == folders_of(os.pathsep) == []


def test_the_same_folders_are_opened_once() -> None:
    assert open_tablebases(str(TABLES)) is open_tablebases(str(TABLES))


def test_the_included_tables_are_used_unless_tables_are_disabled(tmp_path: Path) -> None:
    for path in ("", str(tmp_path)):
        tables = open_tablebases(path)
        assert tables is not None
        assert (tables.wdl_tables, tables.dtz_tables, tables.most_men) == (35, 35, 4)
    assert open_tablebases("<none>") is None
    assert not description("") and not description("<none>")


def test_tablebases_are_reported_once() -> None:
    playing, said = session(TABLES)
    assert said == ["found 35 Syzygy tables of up to 4 men, 35 with distances (.rtbz)"]
    playing.set_position(QUEEN)
    playing.search(Limits(nodes=10))
    playing.options = playing.options.changed(multipv=2)
    assert len(said) == 1
    playing.options = playing.options.changed(syzygy_path="")
    playing.options = playing.options.changed(syzygy_path=str(TABLES))
    assert len(said) == 2


def test_a_damaged_table_is_named_by_the_search_that_met_it(tmp_path: Path) -> None:
    path = tmp_path / "KQQvKQ.rtbw"
    path.write_bytes(b"nothing")
    playing, said = session(tmp_path)
    assert said == ["found 1 Syzygy table of up to 5 men, none with distances (.rtbz)"]
    playing.set_position("8/8/8/7k/8/5q2/8/KQQ5 w - - 0 1")
    for _ in range(2):
        playing.search(Limits(nodes=50))
    assert said[1:] == [f"tablebase {path} is not used: it is no Syzygy table"]


def test_an_included_table_is_used_when_the_users_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "KQvK.rtbw").write_bytes(b"nothing")
    playing, said = session(tmp_path)
    playing.set_position(QUEEN)
    assert playing.search(Limits(nodes=50)).lines[0].tablebase == 1
    assert len(said) == 1


def test_folders_without_tables_are_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    playing, said = session(f"{nowhere}{os.pathsep}{tmp_path}")
    assert said == [
        f"SyzygyPath: cannot read the folder {nowhere}",
        f"SyzygyPath: no tables in {nowhere}{os.pathsep}{tmp_path}: looked for files like KQvK.rtbw and "
        "KQvK.rtbz",
    ]
    playing.set_position(QUEEN)
    assert playing.search(Limits(nodes=50)).lines[0].tablebase == 1  # by an included table


def test_no_table_is_used_when_tables_are_disabled() -> None:
    playing, said = session("<none>")
    playing.set_position("8/8/8/8/3k4/7r/8/KQ6 w - - 0 1")
    report = playing.search(Limits(nodes=50))
    assert report.tablebase_hits == 0 and report.lines[0].tablebase is None
    assert not said


# -- scores --------------------------------------------------------------------------------------------------


def test_a_won_position_has_a_score_beyond_the_others_and_no_mate() -> None:
    line, report = best_line(QUEEN, nodes=20)
    assert (line.tablebase, line.mate) == (1, None)
    assert (line.q, line.wdl) == (1.0, (1.0, 0.0, 0.0))
    assert line.centipawns() == 20_000 - line.tablebase_plies
    assert 11 <= line.tablebase_plies < 20
    assert report.tablebase_hits > 0


def test_a_lost_position_has_the_score_of_the_other_side() -> None:
    line, _ = best_line("8/8/8/8/8/2k5/8/KR6 b - - 0 1", nodes=20)
    assert line.tablebase == -1
    assert line.centipawns() == -20_000 + line.tablebase_plies < -19_900


def test_a_drawn_position_is_level() -> None:
    line, _ = best_line("8/8/8/3k4/8/8/8/KNN5 w - - 0 1", nodes=20)
    assert (line.tablebase, line.centipawns(), line.wdl) == (0, 0, (0.0, 1.0, 0.0))


def test_a_win_that_the_tables_know_later_counts_the_plies_to_it() -> None:
    line, _ = best_line("8/8/8/4k3/8/8/4P3/4KR1r w - - 0 1", nodes=600)
    assert line.moves == ("f1h1",)
    assert (line.tablebase, line.mate, line.centipawns()) == (1, None, 19_999)


def test_a_mate_that_was_found_is_shown_as_one() -> None:
    line, _ = best_line("7k/8/5KQ1/8/8/8/8/8 w - - 0 1", nodes=2000)
    assert line.mate == 1


@pytest.mark.parametrize(
    ("kind", "score"), [("centipawn", 19_990), ("WDL_mu", 19_990), ("Q", 10_000), ("win_percentage", 10_000)]
)
def test_scores_of_every_type(kind: str, score: int) -> None:
    line = Line(("e2e4",), 1, 1.0, (1.0, 0.0, 0.0), 40.0, 0.5, tablebase=1, tablebase_plies=10)
    assert line.score(kind) == score


def test_moves_that_the_tables_leave_are_chosen_from() -> None:
    """A temperature plays bad moves, but none that gives the win away; and `searchmoves` counts."""
    tables = Tablebases([TABLES])
    playing, _ = session(TABLES, temperature=100.0)
    for _ in range(20):
        playing.set_position("8/8/4k3/8/8/3K4/4P3/8 w - - 0 1")
        assert playing.search(Limits(nodes=60)).best_move in ("d3d4", "d3e4")
    report = playing.search(Limits(nodes=60, search_moves=("e2e3", "e2e4", "d3e4")))
    assert report.best_move == "d3e4"
    report = playing.search(Limits(nodes=60, search_moves=("e2e3", "e2e4")))
    assert report.best_move in ("e2e3", "e2e4")
    assert tables.probe_wdl(playing.game) == 2


# -- games ---------------------------------------------------------------------------------------------------


def resist(tables: Tablebases, game: Game, random: Random) -> str:
    """The move that keeps the game longest, or draws."""
    replies = []
    for move in game.legal_moves():
        played = game.copy()
        played.push_uci(move)
        distance = tables.probe_dtz(played)
        assert distance is not None
        replies.append((distance if distance > 0 else 1000, random.random(), move))
    return max(replies)[2]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    "fen",
    [
        QUEEN,
        "8/8/8/8/8/2k5/8/KR6 w - - 0 1",
        "8/8/8/3k4/8/8/8/KBN5 w - - 0 1",
        "8/8/8/3k4/8/8/8/KBB5 w - - 0 1",
        "8/8/4k3/8/8/3K4/4P3/8 w - - 0 1",
        "8/8/8/8/8/2k5/8/KR6 w - - 60 1",
        "8/8/8/3k4/8/8/8/KQ5r w - - 0 1",
    ],
)
def test_won_positions_are_mated_in_time_against_the_best_defence(fen: str, fast: bool) -> None:
    """Even where the search knows nothing, as its evaluations are random."""
    tables = Tablebases([TABLES])
    random = Random(fen)
    playing, _ = session(TABLES, syzygy_fast_play=fast)
    moves: list[str] = []
    playing.set_position(fen)
    while playing.game.result()[0] == "undecided":
        if playing.game.turn == "white":
            move = playing.search(Limits(nodes=100)).best_move
            assert move is not None
        else:
            move = resist(tables, playing.game, random)
        moves.append(move)
        playing.set_position(fen, moves)
    assert playing.game.result() == ("white_won", "checkmate")


@pytest.mark.parametrize("name", ["KQvK", "KRvK", "KBNvK", "KBBvK"])
def test_a_bare_king_is_mated_hardly_later_than_possible(name: str) -> None:
    """Without captures the tables' distance is that to mate."""
    tables = Tablebases([TABLES])
    random = Random(name)
    playing, _ = session(TABLES)
    wins = 0
    while wins < 6:
        fen = random_position(name, random).fen()
        playing.set_position(fen)
        distance = tables.probe_dtz(playing.game)
        if distance is None or distance <= 0:
            continue
        wins += 1
        moves: list[str] = []
        while playing.game.result()[0] == "undecided":
            moves.append(playing.search(Limits(nodes=40)).best_move or "")
            playing.set_position(fen, moves)
            if playing.game.result()[0] == "undecided":
                moves.append(resist(tables, playing.game, random))
                playing.set_position(fen, moves)
        assert playing.game.result()[1] == "checkmate"
        assert (len(moves) + 1) // 2 <= 1.3 * ((distance + 1) // 2), fen

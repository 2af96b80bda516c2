# SPDX-License-Identifier: GPL-3.0-or-later
"""The option SyzygyPath: its folders, what is said of them, and what a search makes of the tables."""

import os
from pathlib import Path

import pytest

from engine._core import Tablebases
from engine.options import Options
from engine.search.limits import Limits
from engine.search.report import Line, Report
from engine.search.session import Session
from engine.search.tablebases import description, folders_of, open_tablebases
from tests.paths import TABLES

SMALL = Options(hash=1, tree_memory=16, minibatch_size=16)
QUEEN = "8/8/8/8/8/2k5/8/KQ6 w - - 0 1"


def session(path: str | Path, **options: object) -> tuple[Session, list[str]]:
    """A session without an evaluator, and what it says."""
    said: list[str] = []
    return Session(SMALL.changed(syzygy_path=str(path), **options), log=said.append, in_process=True), said


def best_line(fen: str) -> tuple[Line, Report]:
    playing, _ = session(TABLES)
    playing.set_position(fen)
    report = playing.search(Limits(nodes=20))
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


@pytest.mark.parametrize(
    ("fen", "result"),
    [(QUEEN, 1), ("8/8/8/8/8/2k5/8/KR6 b - - 0 1", -1), ("8/8/8/3k4/8/8/8/KNN5 w - - 0 1", 0)],
)
def test_a_known_position_has_a_score_beyond_the_others_and_no_mate(fen: str, result: int) -> None:
    line, report = best_line(fen)
    assert (line.tablebase, line.q, line.wdl) == (result, result, (result == 1, result == 0, result == -1))
    assert line.mate is None
    assert line.centipawns() == result * (20_000 - line.tablebase_plies)
    assert not result or 0 < line.tablebase_plies < 100
    assert report.tablebase_hits > 0


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

# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions of test suites."""

from pathlib import Path

import pytest

from engine.apps.games.suite import Suite, read_suite
from protocol.common.printing import ReportedError

MATE = "6k1/5ppp/8/8/8/8/8/K2R4 w - -"


def suite_of(tmp_path: Path, data: bytes | str) -> Suite:
    path = tmp_path / "suite.epd"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_suite(path)


def test_best_and_avoided_moves_and_names(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, f'# mates\n\n{MATE} bm Rd8# Rd7; id "one";\n  {MATE} am d1d8;\n')
    one, other = suite.positions
    assert (one.name, sorted(one.best), sorted(one.avoided)) == ("one", ["d1d7", "d1d8"], [])
    assert (other.name, sorted(other.best), sorted(other.avoided)) == ("4", [], ["d1d8"])
    assert one.solved_by("d1d8") and not one.solved_by("d1d2")
    assert other.solved_by("d1d2") and not other.solved_by("d1d8")
    assert not suite.left_out


def test_the_counters_of_a_fen_may_stand_before_the_operations(tmp_path: Path) -> None:
    (position,) = suite_of(tmp_path, f"{MATE} 7 30 bm Rd8;\n").positions
    assert position.fen == f"{MATE} 7 30"


def test_operations_may_come_in_any_order_and_without_quotes(tmp_path: Path) -> None:
    rest = 'c0 "am Rd8; bm Kb1"; dm 1; id WAC.001 (hard); pv Rd8; hmvc 4; fmvn 9; bm Rd8#;'
    (position,) = suite_of(tmp_path, f"{MATE} {rest}\n").positions
    assert position.name == "WAC.001 (hard)"
    assert (sorted(position.best), sorted(position.avoided)) == (["d1d8"], [])
    assert position.fen == f"{MATE} 4 9"


def test_files_of_other_systems_are_read(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + MATE.encode() + b' bm Rd8; id "Z\xfcrich";\r\n'
    (position,) = suite_of(tmp_path, data).positions
    assert position.name.startswith("Z")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("rubbish", "begins with board, side to move"),
        ("rubbish w - - bm e4;", "expected 8 rows"),
        ("8/8/8/8/8/8/8/8 w - -", "neither bm nor am"),
        ("8/8/8/8/8/8/8/8 w - - bm e4;", "illegal san"),
        (f"{MATE} bm Qa1;", "illegal san"),
        (f"{MATE} id x;", "neither bm nor am"),
        ("k6R/8/8/8/8/8/8/K7 w - - bm Rh1;", "Black is in check but it is White's move"),
    ],
)
def test_invalid_lines_are_omitted_with_their_reason(tmp_path: Path, line: str, reason: str) -> None:
    suite = suite_of(tmp_path, f"{MATE} bm Rd8;\n{line}\n{MATE} am Rd8;\n")
    assert [position.name for position in suite.positions] == ["1", "3"]
    assert list(suite.left_out) == [2] and reason in suite.left_out[2]
    for alone, told in ((line, "line 1: "), ("", "no position")):
        with pytest.raises(ReportedError, match=told):
            suite_of(tmp_path, alone)

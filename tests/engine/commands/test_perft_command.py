# SPDX-License-Identifier: GPL-3.0-or-later
"""`run_engine.py perft`."""

import pytest

from engine.commands import perft
from tests.engine.flags import parser_of


def run(*arguments: str) -> int:
    return perft.run(parser_of(perft).parse_args(arguments))


def test_prints_nodes_time_and_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "nodes 197281" and [line.split()[0] for line in lines[1:]] == ["seconds", "nodes/s"]
    assert run("2", "--divide") == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], len(lines), lines[20]) == ("a2a3: 20", 20 + 3, "nodes 400")
    fen = "bbqnnrkr/pppppppp/8/8/8/8/PPPPPPPP/BBQNNRKR w HFhf - 0 1"
    assert run("3", "--fen", fen, "--chess960") == 0
    assert "nodes 9006\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("3", "--fen", "nonsense"), "perft: FEN: 1 fields instead of 6"),
        (("99",), "perft: depth 99 is not from 0 to 30"),
        (("0", "--divide"), "perft: depth 0 is not from 1 to 30"),
    ],
)
def test_reports_bad_input(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert reason in output.err

# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront check-engine` on this engine, and on programs with one fault each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine import cli
from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

PROGRAM = """
import sys
for line in sys.stdin:
    words = line.split()
    if words[:1] == ["uci"]:
        print("id name faulty\\nid author nobody\\n{options}\\nuciok", flush=True)
    elif words[:1] == ["isready"]:
        print("readyok", flush=True)
    elif words[:1] == ["go"]:
        print("{info}\\nbestmove {move}", flush=True)
    elif words[:1] == ["quit"]:
        break
"""

OPTION = "option name Hash type spin default 16 min 1 max 64"
INFO = "info depth 1 time 1 nodes 20 score cp 10 pv e2e4"


def failures(command: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    status = cli.main(["check-engine", "--json", *command])
    found = json.loads(capsys.readouterr().out)
    assert status == (0 if found["ok"] else 1)
    return {each["check"]: each["detail"] for each in found["checks"] if not each["ok"]}


def test_this_engine_follows_uci(capsys: pytest.CaptureFixture[str]) -> None:
    engine = [sys.executable, str(REPOSITORY / "run_engine.py"), "--backend", "random"]
    assert failures(engine, capsys) == {}


@pytest.mark.parametrize(
    ("fault", "check", "named"),
    [
        ({"options": "option name Hash type spin default 0 min 1 max 64"}, "options", "Hash"),
        ({"info": "info depth 1 nps 12.5 score cp 10 pv e2e4"}, "go nodes 1", "12.5"),
        ({"info": "info depth 1"}, "go wtime 100, startpos", "score"),
        ({"info": "info depth 1 score cp 1 pv e2e4 e2e4"}, "go depth 1", "pv"),
        ({"move": "e2e5"}, "go nodes 1", "e2e5"),
    ],
)
def test_a_fault_is_named(
    fault: dict[str, str], check: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "faulty.py"
    program.write_text(PROGRAM.format(**{"options": OPTION, "info": INFO, "move": "e2e4", **fault}))
    found = failures([sys.executable, str(program)], capsys)
    assert named in found[check]
    assert "uci" not in found and "isready" not in found


def test_a_program_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "/nonexistent" in failures(["/nonexistent"], capsys)["uci"]

# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/reference/analysis.md: its fields, actions and flags exist, its conversation and examples run."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.apps.analysis.actions import ACTIONS
from engine.apps.analysis.query import NAMES
from engine.apps.analysis.schema import schema
from tests.engine.apps.analysis.recording import ANSWER
from tests.engine.apps.web.serving import web
from tests.paths import REPOSITORY

TEXT = (REPOSITORY / "docs" / "reference" / "analysis.md").read_text("utf-8")
RUN = [sys.executable, str(REPOSITORY / "run_engine.py"), "analysis", "--backend", "random"]
GAME = "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 *\n"


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def names_of(text: str) -> set[str]:
    """What the first columns of its tables name."""
    columns = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return {name for column in columns for name in re.findall(r"`([^`]*)`", column)}


def test_the_table_of_queries_has_every_field() -> None:
    assert names_of(section("Queries")) | {"id"} == set(NAMES)


def test_the_table_of_answers_has_every_field() -> None:
    assert names_of(section("Answers")) == set(schema()["$defs"]["analysis"]["properties"])


def test_the_table_of_actions_has_every_action() -> None:
    assert names_of(section("Actions")) == set(ACTIONS)


def shape(value: Any) -> Any:
    """A value with nothing of numbers and moves but their place."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.integration
def test_the_conversation_is_one_that_is_had() -> None:
    (transcript,) = re.findall(r"<!-- transcript -->\n```json\n(.*?)```", TEXT, re.DOTALL)
    lines = re.sub(r"\n +", "", transcript).splitlines()  # an answer goes on in indented lines
    said = [line[2:] for line in lines if line.startswith("> ")]
    told = [json.loads(line[2:]) for line in lines if line.startswith("< ")]
    done = subprocess.run(RUN[:-2], input="\n".join(said), capture_output=True, text=True, timeout=120)
    had = [json.loads(line) for line in done.stdout.splitlines()]

    def place(answer: dict[str, Any]) -> tuple[str, int, bool]:
        return answer["id"], answer.get("turn", -1), "warning" in answer

    for expected, answer in zip(sorted(told, key=place), sorted(had, key=place), strict=True):
        ANSWER.validate(expected)
        assert place(answer) == place(expected)
        if "moves" not in expected:
            assert answer == expected
            continue
        assert shape(answer) == shape(expected)
        assert answer["fen"] == expected["fen"]
        assert len(answer["moves"][0]["pv"]) <= 4


@pytest.mark.integration
def test_the_python_example_reviews_a_game(tmp_path: Path) -> None:
    (tmp_path / "game.pgn").write_text(GAME)
    example = REPOSITORY / "docs" / "examples" / "review_game.py"
    command = [sys.executable, str(example), "game.pgn", "--nodes", "20", "--engine", " ".join(RUN)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["e4", "e5", "Nf3", "Nc6", "Bb5", "a6", "Ba4"]


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node (nodejs)")
def test_the_javascript_example_shows_a_search() -> None:
    command = ["node", str(REPOSITORY / "docs" / "examples" / "live_analysis.mjs")]
    with web() as server:

        def show(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*command, server.url, *arguments], capture_output=True, text=True, timeout=120
            )

        done = show("startpos", "300")
        assert done.returncode == 0, done.stderr
        *_, summary, best = done.stdout.splitlines()
        assert re.fullmatch(r"300 visits: (\w{4} [+-]?\d+\.\d\d *){3}", summary)
        assert re.fullmatch(r"best move \w{4}", best)
        stalemate = show("8/8/8/8/8/4k3/4p3/4K3 w - - 0 1")
        assert stalemate.stdout.splitlines()[-1] == "best move none"
        wrong = show("no position")
        assert wrong.returncode == 1
        assert wrong.stderr.startswith("FEN")

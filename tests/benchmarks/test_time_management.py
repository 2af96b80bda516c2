"""benchmarks/search/time_management.py: the model of games, and what the default manager reaches in it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.paths import REPOSITORY

BENCHMARK = [sys.executable, "-m", "benchmarks.search.time_management"]


def run(*arguments: str) -> str:
    command = [*BENCHMARK, *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=300
    ).stdout


@pytest.fixture(scope="module")
def figure() -> Any:
    (only,) = json.loads(run("--games", "200", "--managers", "adaptive", "--control", "60+0.6", "--json"))
    return only


def test_at_most_15_percent_of_the_clock_is_left_at_the_end_of_a_game(figure: Any) -> None:
    assert figure["reached"]
    assert 5 < figure["measured"] <= 15


def test_a_table_shows_every_manager_at_every_control() -> None:
    text = run("--games", "20", "--managers", "simple; legacy(slowmover=2)", "--control", "10/60+1")
    lines = text.splitlines()
    assert lines[0].startswith("10/60+1 ")
    assert [line.split()[0] for line in lines[1:]] == ["simple", "legacy(slowmover=2)"]
    assert all(" 0 " in line for line in lines[1:]), "no game is lost on time"

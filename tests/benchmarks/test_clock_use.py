"""benchmarks.strength.clock_use: what searches of games make of their budgets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.paths import REPOSITORY


def test_searches_of_a_game_are_counted() -> None:
    command = [sys.executable, "-m", "benchmarks.strength.clock_use", "--backend", "random"]
    command += ["--games", "1", "--control", "0.3+0.005", "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    assert found["games"] == 1 and 0 < found["free"] <= found["searches"]
    shares = [found[name] for name in ("at_once", "early", "at_end", "beyond")]
    assert sum(shares) == pytest.approx(100)
    assert 0 <= found["kept"] <= 100 and 0 <= found["left"] <= 100 and found["used"] > 0

"""benchmarks/simulated_time.py and simulated_match.py: searches and games whose time is counted."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from simulated_time import Costs, TimedSearch

from engine._core import Batch, Game
from protocol.batch import EvaluationBatch
from tests.paths import REPOSITORY


def undecided(batch: Batch) -> EvaluationBatch:
    """All moves and all results alike."""
    wdl = np.full((batch.size, 3), 1 / 3, np.float32)
    return EvaluationBatch(np.zeros(len(batch.moves), np.float32), wdl, np.zeros(batch.size, np.float32))


def searched(way: str, costs: Costs, move_ms: float) -> tuple[int, int, int]:
    """Visits, calls and hits of a search of the initial position."""
    search = TimedSearch(way, costs, undecided, input_format=1, has_moves_left=False)
    search.set_position(Game())
    spent = search.search(move_ms)
    return search.tree.root_info().visits, spent.calls, spent.hits


def test_a_search_makes_the_calls_that_there_is_time_for() -> None:
    costs = Costs(base=0.5, each=0.0, call=0.5, position=0.0, visit=0.0)
    assert searched("LookAhead=0", costs, 20)[1] == 20
    assert searched("LookAhead=0", Costs(base=0.5, each=0.0, call=1.5, position=0.0, visit=0.0), 20)[1] == 10


def test_positions_and_visits_take_their_time() -> None:
    quick = searched("LookAhead=64", Costs(), 50)
    for slow in (Costs(position=0.04), Costs(each=0.04), Costs(visit=0.1)):
        assert searched("LookAhead=64", slow, 50)[1] < quick[1]


def test_what_was_looked_ahead_to_is_found_in_the_cache() -> None:
    costs = Costs(each=0.0, position=0.0, visit=0.0)
    visits, calls, hits = searched("LookAhead=16", costs, 40)
    more_visits, as_many_calls, more_hits = searched("LookAhead=256", costs, 40)
    assert as_many_calls == calls
    assert more_visits > visits
    assert more_hits > hits


@pytest.mark.parametrize("processes", [1, 2])
def test_a_match_is_played_to_its_end(processes: int) -> None:
    command = [sys.executable, "benchmarks/simulated_match.py", "LookAhead=32", "--backend", "random"]
    command += ["--games", "4", "--move-ms", "2", "--processes", str(processes), "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    summary = json.loads(done.stdout)
    assert summary["games"] == 4
    assert min(summary["visits"]) >= 2
    assert summary["calls"] == pytest.approx([2, 2], abs=1)

"""Ways to choose batches under a clock, simulated and real: simulated_*.py and nodes_in_time.py."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.strength.simulated_clock import SimulatedClock
from benchmarks.strength.simulated_time import Costs, TimedSearch
from engine._core import Batch, Game
from engine.match.timecontrol import TimeControl
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
    assert searched("LookAhead=0,BatchesInFlight=1", costs, 20)[1] == 20
    assert searched("LookAhead=0,BatchesInFlight=1", replace(costs, call=1.5), 20)[1] == 10


def test_a_second_call_goes_its_way_while_the_device_has_the_first() -> None:
    costs = Costs(base=0.5, each=0.0, call=0.5, position=0.0, visit=0.0)
    assert searched("LookAhead=0", costs, 20)[1] == pytest.approx(40, abs=2)
    assert searched("LookAhead=0", replace(costs, call=1.5), 20)[1] == pytest.approx(20, abs=2)
    one, *_ = searched("VisitsPerPosition=32", Costs(), 20)
    two, *_ = searched("VisitsPerPosition=32,SecondBatch=2", Costs(), 20)
    assert two > one  # with no more positions under way


def test_a_clock_is_shared_out_and_never_runs_out() -> None:
    search = TimedSearch("SmartPruningFactor=1.33", Costs(), undecided, input_format=1, has_moves_left=False)
    clock = SimulatedClock(search, TimeControl(base_ms=1000, increment_ms=10))
    spent = []
    for ply in range(0, 120, 2):
        search.tree.clear()
        search.set_position(Game())
        spent.append(clock.search(ply).ms)
    assert min(spent) > 0
    assert 0.7 * (1000 + 60 * 10) < sum(spent) < 1000 + 60 * 10


def test_positions_and_visits_take_their_time() -> None:
    quick = searched("LookAhead=64", Costs(), 50)
    for slow in (Costs(position=0.04), Costs(each=0.04), Costs(visit=0.1)):
        assert searched("LookAhead=64", slow, 50)[1] < quick[1]


def test_what_was_looked_ahead_to_is_found_in_the_cache() -> None:
    costs = Costs(each=0.0, position=0.0, visit=0.0)
    visits, calls, hits = searched("LookAhead=16,BatchesInFlight=1", costs, 40)
    more_visits, as_many_calls, more_hits = searched("LookAhead=256,BatchesInFlight=1", costs, 40)
    assert as_many_calls == calls
    assert more_visits > visits
    assert more_hits > hits


@pytest.mark.parametrize("processes", [1, 2])
def test_a_match_is_played_to_its_end(processes: int) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.strength.simulated_match",
        "LookAhead=32",
        "--backend",
        "random",
    ]
    command += ["--games", "4", "--move-ms", "2", "--processes", str(processes), "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    summary = json.loads(done.stdout)
    assert summary["games"] == 4
    assert min(summary["visits"]) >= 2
    assert summary["calls"] == pytest.approx([4, 4], abs=1.5)


def test_ways_are_compared_in_real_time() -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.strength.nodes_in_time",
        "default",
        "SecondBatch=2",
        "--json",
    ]
    command += ["--rounds", "1", "--move-ms", "10", "--kept", "200"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=120)
    found = json.loads(done.stdout)
    assert [*found] == ["default", "SecondBatch=2"]
    assert all(each["nodes"] >= 200 and each["calls"] > 0 for each in found.values())

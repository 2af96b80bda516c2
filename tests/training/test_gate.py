# SPDX-License-Identifier: GPL-3.0-or-later
"""A gate lets only a network through that an SPRT finds stronger."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.search.player.network_constants import ON_CPU, ON_GPU
from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from protocol.common.processes import INTERRUPTED
from tests.training.run.runs import run_training, start_training
from training.gate import verdict_of

pytestmark = pytest.mark.integration


def test_a_network_does_not_take_its_own_place(tmp_path: Path) -> None:
    network = tmp_path / "net.pb.gz"
    write_network(random_network("tiny-attention"), network)
    arguments = ("gate", network, "--against", network, "--nodes", "2", "--games", "4", "--json")
    promoted = tmp_path / "best.pb.gz"
    done = run_training(*arguments, "--promote", promoted, "--match=--max-moves=12", status=3)
    verdict = json.loads(done.stdout)
    assert verdict == json.loads((tmp_path / "gate" / "gate.json").read_text("utf-8"))
    assert not verdict["accepted"]
    assert verdict["match"]["games"] == 4
    assert not promoted.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM for another process")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_gate_that_is_ended_takes_its_match_with_it(tmp_path: Path, name: str) -> None:
    number = signal.Signals[name]
    network = tmp_path / "net.pb.gz"
    write_network(random_network("tiny-attention"), network)
    arguments = ("gate", network, "--against", network, "--nodes", "2", "--games", "2000", "--sprt", "elo1=2")
    journal = tmp_path / "gate" / "match.jsonl"
    with start_training(*arguments, "--match=--max-moves=12") as process:
        while not journal.exists() or len(journal.read_bytes().splitlines()) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        process.wait(60)
    assert not psutil.wait_procs(children, timeout=30)[1]
    if number is signal.SIGTERM:
        assert process.returncode == INTERRUPTED
    assert not (tmp_path / "gate" / "gate.json").exists()


def test_gate_accepts_the_name_of_an_included_network(tmp_path: Path) -> None:
    arguments = ("gate", "wavefront-cpu", "--nodes", "1", "--games", "2", "--output", tmp_path, "--json")
    done = run_training(*arguments, "--match=--max-moves=2", status=3)
    assert json.loads(done.stdout)["match"]["games"] == 2


def test_both_players_have_the_named_networks_constants(tmp_path: Path) -> None:
    network = tmp_path / "net.pb.gz"
    write_network(random_network("tiny-attention"), network)
    arguments = ("gate", network, "--against", network, "--nodes=1", "--games=2", "--match=--max-moves=2")
    for shipped, expected in (("wavefront-cpu", dict(ON_CPU)), ("wavefront-gpu", dict(ON_GPU)), ("", {})):
        named = ("--constants-of", shipped) if shipped else ()
        run_training(*arguments, *named, "--output", tmp_path / f"gate{shipped}", status=3)
        with (tmp_path / f"gate{shipped}" / "match.jsonl").open(encoding="utf-8") as journal:
            players = json.loads(next(journal))["identity"]["players"]
        for player in players:
            assert {name: player["options"][name] for name in ON_CPU if name in player["options"]} == expected


@pytest.mark.parametrize(("decision", "accepted"), [("H1", True), ("H0", False), (None, False)])
def test_only_the_hypothesis_of_more_strength_accepts(decision: str | None, accepted: bool) -> None:
    elo = {"value": 30.0, "low": 5.0, "high": 55.0}
    summary: dict[str, Any] = {"sprt": {"decision": decision}, "pairings": [{"elo": elo}], "games": 100}
    verdict = verdict_of(Path("new.pb.gz"), "shipped", summary)
    assert verdict["accepted"] is accepted
    assert verdict["elo"] == elo


def test_a_network_that_is_not_there_is_reported(tmp_path: Path) -> None:
    refused = run_training("gate", tmp_path / "none.pb.gz", status=1)
    assert "no network there" in refused.stderr

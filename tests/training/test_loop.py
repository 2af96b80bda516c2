# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop makes a generation, goes on after a kill, and promotes what its gate lets in."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from protocol.settings.spec import SettingsError
from tests.paths import REPOSITORY
from tests.training.run.runs import SETTINGS, read_until, run_training, start_training, write_run
from training.config import LoopSettings
from training.loop import STEPS, loop_settings

pytestmark = pytest.mark.integration

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")


def write_loop(folder: Path) -> Path:
    network = folder / "start.pb.gz"
    write_network(random_network("tiny-attention"), network)
    selfplay = folder / "selfplay.toml"
    selfplay.write_text("max_plies = 30\n[engine]\nthreads = 1\n", "utf-8")
    train = write_run(
        folder, optimiser={"batch": 16}, schedule={"positions": 320}, data=SETTINGS["data"] | {"holdout": 0.0}
    )
    path = folder / "loop.toml"
    path.write_text(
        f"""
start = "{network}"
output = "{folder / "loop"}"
generations = 1
selfplay = "{selfplay}"
games = 4
nodes = 3
train = "{train}"
gate_nodes = 2
gate_games = 4
match = ["--max-moves=8"]
""",
        "utf-8",
    )
    return path


def test_a_loop_continues_where_it_was_killed(tmp_path: Path) -> None:
    config = write_loop(tmp_path)
    with start_training("loop", config) as process:
        read_until(process, "generation 1: train")
        process.kill()
    again = run_training("loop", config)
    told = [line for line in again.stdout.splitlines() if line.startswith("generation")]
    assert told[:3] == ["generation 1: train", "generation 1: gate", "generation 1: promote"]
    folder = tmp_path / "loop"
    lines = (folder / "journal.jsonl").read_text("utf-8").splitlines()
    entries = [json.loads(line) for line in lines[1:]]
    assert [entry["step"] for entry in entries] == list(STEPS)
    promoted = (folder / "best.pb.gz").read_bytes()
    trained = (folder / "generation-0001" / "run" / "network.pb.gz").read_bytes()
    assert entries[-1]["accepted"] == (promoted == trained)
    assert run_training("loop", config).stdout == ""


def test_loop_file_has_the_defaults() -> None:
    path = REPOSITORY / "configs" / "loop.toml"
    assert loop_settings(tomllib.loads(path.read_text("utf-8")), str(path)) == LoopSettings()


def test_a_wrong_key_is_named() -> None:
    with pytest.raises(SettingsError, match="'window'"):
        loop_settings({"widnow": 3}, "loop.toml")

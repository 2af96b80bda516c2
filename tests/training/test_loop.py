# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop makes a generation, goes on after a kill, and promotes what its gate lets in."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine.apps.shards.shard import read_header, write_shard
from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from protocol.common.settings.spec import SettingsError
from tests.paths import REPOSITORY
from tests.training.labels import labelled_shard
from tests.training.run.runs import SETTINGS, read_until, run_training, start_training, write_run
from training import loop
from training.config import LoopSettings
from training.data.annotations import prior_identity
from training.data.reading import count_positions
from training.loop import Loop, loop_settings

pytestmark = pytest.mark.integration

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")


BATCH = 16


def write_loop(folder: Path, **settings: object) -> Path:
    network = folder / "start.pb.gz"
    write_network(random_network("tiny-attention"), network)
    selfplay = folder / "selfplay.toml"
    selfplay.write_text("max_plies = 30\n[engine]\nthreads = 1\n", "utf-8")
    data = SETTINGS["data"] | {"holdout": 0.0}
    train = write_run(folder, optimiser={"batch": BATCH}, schedule={"positions": 320}, data=data)
    values = {
        "start": str(network),
        "output": str(folder / "loop"),
        "generations": 1,
        "selfplay": str(selfplay),
        "games": 4,
        "nodes": 3,
        "annotate_nodes": 4,
        "train": str(train),
        "gate_nodes": 2,
        "gate_games": 4,
        "gate_clock": "",
        "match": ["--max-moves=8"],
    }
    path = folder / "loop.toml"
    path.write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in (values | settings).items()), "utf-8"
    )
    return path


def entries_of(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "loop" / "journal.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]]


def test_a_loop_continues_where_it_was_killed(tmp_path: Path) -> None:
    config = write_loop(tmp_path)
    with start_training("run", config) as process:
        read_until(process, "generation 1: train")
        process.kill()
    again = run_training("run", config)
    told = [line for line in again.stdout.splitlines() if line.startswith("generation")]
    assert told[:3] == [f"generation 1: {step}" for step in ("train", "gate", "promote")]
    folder = tmp_path / "loop"
    entries = entries_of(tmp_path)
    assert [entry["step"] for entry in entries] == ["selfplay", "annotate", "train", "gate", "promote"]
    promoted = (folder / "best.pb.gz").read_bytes()
    trained = (folder / "generation-0001" / "run" / "network.pb.gz").read_bytes()
    assert entries[-1]["accepted"] == (promoted == trained)
    assert run_training("run", config).stdout == ""
    # One pass over the positions, and not the length that the settings of training name.
    shards = [*(folder / "data").rglob("*.shard")]
    searched = sum(map(count_positions, shards))
    prior = prior_identity(str(tmp_path / "start.pb.gz"), 4)
    assert [read_header(path)["annotated_by"] for path in shards] == [prior]
    metrics = (folder / "generation-0001" / "run" / "metrics.jsonl").read_text("utf-8")
    assert 0 <= json.loads(metrics.splitlines()[-1])["positions"] - searched < BATCH


def test_loop_annotates_and_ends_without_promotions(tmp_path: Path) -> None:
    data = tmp_path / "shards"
    for number in range(3):
        write_shard(data / f"{number}.shard", labelled_shard(4 - number, 12, seed=number + 1))
        os.utime(data / f"{number}.shard", (number, number))
    config = write_loop(
        tmp_path,
        games=0,
        data=[str(data)],
        backend="onnx:int8=false,provider=cpu",
        annotate_nodes=4,
        annotate_positions=20,
        window=1,
        generations=0,
        gate_clock="0.2+0.01",
        sprt="elo0=500,elo1=600",  # no network is that much stronger
    )
    done = run_training("run", config)
    assert "2 generations" in done.stdout
    entries = entries_of(tmp_path)
    assert [entry["step"] for entry in entries] == 2 * ["annotate", "train", "gate", "clock", "promote"]
    assert not any(entry.get("accepted") for entry in entries)
    # Without a promotion the first shard, which one generation annotates, keeps its annotations.
    headers = [read_header(data / f"{number}.shard") for number in range(3)]
    assert [bool(header.get("annotated_by")) for header in headers] == [True, False, False]
    generation = tmp_path / "loop" / "generation-0001"
    assert not (generation / "clock").exists()  # it lost the first gate
    # The newest shard is the one that was annotated last, not the last by name.
    metrics = (generation / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    assert 0 <= json.loads(metrics[-1])["positions"] - count_positions(data / "0.shard") < BATCH


def test_loop_file_has_the_defaults() -> None:
    path = REPOSITORY / "configs" / "loop.toml"
    assert loop_settings(tomllib.loads(path.read_text("utf-8")), str(path)) == LoopSettings()


def test_a_wrong_key_is_named() -> None:
    with pytest.raises(SettingsError, match="'window'"):
        loop_settings({"widnow": 3}, "loop.toml")


def test_a_loop_without_positions_is_refused() -> None:
    with pytest.raises(SettingsError, match="data is empty"):
        loop_settings({"games": 0}, "loop.toml")


def test_games_use_an_evaluator_for_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "backends_of", lambda backend: [backend, f"{backend}:int8=false"])
    config = write_loop(tmp_path, backend="onnx", annotate_nodes=0)
    settings = loop_settings(tomllib.loads(config.read_text("utf-8")), str(config))
    Loop(settings, lambda text: None).run()
    assert [entry["step"] for entry in entries_of(tmp_path)] == ["selfplay", "train", "gate", "promote"]

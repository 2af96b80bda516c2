# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs learn, end, go on after whatever ended them, and say the same on several processes."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from evaluator.network import load_network
from evaluator.network.writer import write_network
from protocol.common.settings.sources import read_document
from tests.training.run.runs import SETTINGS, read_until, run_training, start_training, write_run

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.config import ModelSettings, train_config  # noqa: E402
from training.data.reading import ShardReader  # noqa: E402
from training.data.table import PositionTable  # noqa: E402
from training.errors import TrainingError  # noqa: E402
from training.model.initial import initial_network  # noqa: E402
from training.model.losses import Batch, TrainedHeads  # noqa: E402
from training.run.checkpoint import NAME, load_checkpoint  # noqa: E402
from training.run.processes import Group  # noqa: E402
from training.run.run import TrainJob, train  # noqa: E402


def metrics(folder: Path, kind: str = "step") -> list[dict[str, Any]]:
    lines = (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def weights(folder: Path) -> dict[str, Any]:
    state = load_checkpoint(folder / "run")
    assert state is not None
    found: dict[str, Any] = state["trainer"]["heads"]
    return found


def test_a_small_network_learns_some_hundred_positions_by_heart(tmp_path: Path) -> None:
    config = write_run(
        tmp_path, games=10, data={"holdout": 0.0}, schedule={"positions": 12_000, "warmup_steps": 20}
    )
    run_training("train", config)
    last = metrics(tmp_path)[-1]
    assert last["best_move"] > 0.9
    assert last["policy_kl"] < 0.1
    network = load_network(tmp_path / "run" / "network.pb.gz")
    assert network.moves_left is not None


def test_a_run_that_was_killed_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    often = {"checkpoint_s": 1.0}
    run_training("train", write_run(whole, run=often))
    config = write_run(killed, run=often)
    with start_training("train", config) as process:
        read_until(process, "checkpoint after")
        process.kill()
    assert not (killed / "run" / "network.pb.gz").exists()
    again = run_training("train", config)
    assert "going on after" in again.stdout
    one, other = weights(whole), weights(killed)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    files = [(folder / "run" / "network.pb.gz").read_bytes() for folder in (whole, killed)]
    assert files[0] == files[1]


def test_sigterm_leaves_a_checkpoint_and_says_how_to_continue(tmp_path: Path) -> None:
    config = write_run(tmp_path, schedule={"positions": 10**9})
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install '.[plot]'")
    with start_training("train", config, "--plot") as process:
        read_until(process, "step ")
        process.send_signal(signal.SIGTERM)
        read_until(process, "the same command resumes")
    assert process.returncode == 130
    state = load_checkpoint(tmp_path / "run")
    assert state is not None
    assert state["trainer"]["steps"] > 0
    assert (tmp_path / "run" / "losses.png").read_bytes().startswith(b"\x89PNG")


def test_dead_units_are_reported_and_a_run_may_begin_them_anew(tmp_path: Path) -> None:
    network = initial_network(ModelSettings(**SETTINGS["model"]), seed=1)
    with torch.no_grad():
        network.encoders[0].ffn.dense1.biases.fill_(-100)
    start = tmp_path / "start.pb.gz"
    write_network(network.spec(), start)
    short = {"positions": 640, "warmup_steps": 10}
    for revive, shares in ((False, (1.0, 1.0)), (True, (0.0, 0.5))):
        folder = tmp_path / str(revive)
        config = write_run(folder, model={"start": str(start), "revive": revive}, schedule=short)
        told = run_training("train", config).stdout
        low, high = shares
        assert low <= metrics(folder, "held_out")[-1]["dead_units"]["encoder 1"] <= high
        assert ("100% of encoder 1" in told) != revive
        assert ("48 dead units of feed-forward layers restarted" in told) == revive


def test_run_ends_with_its_time_and_exports_the_mean(tmp_path: Path) -> None:
    config = write_run(tmp_path, schedule={"positions": 10**9})
    left = run_training("train", config, "--stop-after", "0.1")
    assert "the same command resumes" in left.stdout
    exported = run_training(
        "export", tmp_path / "run", "--policy-temperature", "1.3", "--license", "CC0 1.0", "--json"
    )
    facts = json.loads(exported.stdout)
    assert facts["logits"] < 1e-4
    network = load_network(facts["file"])
    assert (network.policy_head, network.info.license) == ("vanilla", "CC0 1.0")


def test_two_processes_learn_what_one_learns_of_the_same_batches(tmp_path: Path) -> None:
    alone, two = tmp_path / "alone", tmp_path / "two"
    short = {"positions": 1280, "warmup_steps": 10}
    run_training("train", write_run(alone, schedule=short))
    run_training("train", write_run(two, schedule=short, run={"processes": 2}))
    one, other = weights(alone), weights(two)
    for name in one:
        assert np.allclose(one[name].numpy(), other[name].numpy(), atol=2e-3), name


def test_checkpoint_is_refused_when_settings_differ(tmp_path: Path) -> None:
    run_training("train", write_run(tmp_path), "--stop-after", "0.1")
    other = write_run(tmp_path, optimiser={"batch": 32})
    refused = run_training("train", other, status=1)
    assert "optimiser.batch: 64 -> 32" in refused.stderr


@pytest.mark.parametrize("column", ["wdl", "next_wdl"])
def test_run_keeps_its_checkpoint_when_targets_are_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    path = write_run(tmp_path, data={"holdout": 0.0}, run={"checkpoint_s": 1e7})
    config = train_config(read_document(str(path)), str(path))
    group = Group(0, 1, torch.device("cpu"))
    whole = replace(config, schedule=replace(config.schedule, positions=640))
    train(group, TrainJob(whole, perf_counter()))
    before = weights(tmp_path)
    read = ShardReader.read

    def spoilt(reader: ShardReader, file: str) -> PositionTable:
        table = read(reader, file)
        values = getattr(table, column).copy()
        values[7] = np.nan
        return replace(table, **{column: values})

    monkeypatch.setattr(ShardReader, "read", spoilt)
    with pytest.raises(TrainingError, match=r"data/0\.shard"):
        train(group, TrainJob(config, perf_counter()))
    after = weights(tmp_path)
    assert all(torch.equal(values, after[name]) for name, values in before.items())
    assert all(values.isfinite().all() for values in after.values())


def test_run_that_diverges_stops_without_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run(tmp_path)
    config = train_config(read_document(str(path)), str(path))
    forward = TrainedHeads.forward

    def diverging(heads: TrainedHeads, batch: Batch) -> tuple[Any, Any]:
        loss, figures = forward(heads, batch)
        return loss * float("inf"), figures

    monkeypatch.setattr(TrainedHeads, "forward", diverging)
    with pytest.raises(TrainingError, match=r"\[optimiser\].*no checkpoint"):
        train(Group(0, 1, torch.device("cpu")), TrainJob(config, perf_counter()))
    assert not (tmp_path / "run" / NAME).exists()


def test_a_checkpoint_whose_weights_are_not_finite_is_refused(tmp_path: Path) -> None:
    config = write_run(tmp_path, schedule={"positions": 640})
    run_training("train", config)
    checkpoint = tmp_path / "run" / NAME
    state = torch.load(checkpoint, weights_only=True)
    next(iter(state["trainer"]["heads"].values())).fill_(float("nan"))
    torch.save(state, checkpoint)
    refused = run_training("train", config, status=1)
    assert "weights that are not finite" in refused.stderr


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    config = write_run(tmp_path)
    checkpoint = tmp_path / "run" / NAME
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"PK\x03\x04 nothing")
    refused = run_training("train", config, status=1)
    assert f"{checkpoint} is damaged" in refused.stderr


@pytest.mark.parametrize(
    ("setting", "status", "message"),
    [
        ("optimiser.batch=100000", 1, "less than a batch"),
        ("run.processes=3", 1, "no multiple of the 3 processes"),
        ("run.device=cuda", 1, "sees no GPU"),
        ("model.start=/nowhere.pb.gz", 1, "/nowhere.pb.gz"),
        ("data.main=/nowhere", 1, "/nowhere: no training positions there"),
        ('data.main=["/nowhere"]', 1, "/nowhere: no training positions there"),
        ("model.widht=3", 2, "did you mean 'width'"),
        ("model.heads=3", 2, "no multiple of heads"),
        ("x", 2, "table.key=value"),
        ('data.main=["a", b]', 2, "a list is written"),
    ],
)
def test_training_rejects_wrong_settings(tmp_path: Path, setting: str, status: int, message: str) -> None:
    if "cuda" in setting and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    refused = run_training("train", write_run(tmp_path), "--set", setting, status=status)
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_second_process_waits_and_continues_the_run(tmp_path: Path) -> None:
    config = write_run(tmp_path, schedule={"positions": 10**9})
    with start_training("train", config) as first:
        read_until(first, "step ")
        with start_training("train", config, "--stop-after", "0.1") as second:
            read_until(second, "waiting for its end")
            first.send_signal(signal.SIGTERM)
            read_until(second, "going on after")
            read_until(second, "the same command resumes")
        read_until(first, "the same command resumes")
    assert (first.returncode, second.returncode) == (130, 0)

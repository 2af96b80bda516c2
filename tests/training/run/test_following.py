# SPDX-License-Identifier: GPL-3.0-or-later
"""Shards that appear while a run goes on join it, on every process, and are in it when it goes on."""

import io
import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.apps.shards.shard import write_shard
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.writer import write_network
from tests.training.labels import labelled_shard
from tests.training.run.runs import SETTINGS, read_until, run_training, start_training, write_run
from training.config import DataSettings, TargetSettings, TrainConfig, train_config
from training.data.following import Follower, NewShards
from training.data.reading import ShardReader, shard_files, table_of
from training.data.table import PositionTable

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.run.checkpoint import load_checkpoint  # noqa: E402
from training.run.device_table import DeviceTable, first_of_each  # noqa: E402
from training.run.processes import Group  # noqa: E402
from training.run.trainer import Trainer  # noqa: E402


def table(seed: int, data: DataSettings, games: int = 6) -> PositionTable:
    return table_of(labelled_shard(games, 40, seed), data, TargetSettings(), input_format=1)


def device_table(tables: list[PositionTable], data: DataSettings) -> DeviceTable:
    cpu = torch.device("cpu")
    return DeviceTable(tables, data, input_format=1, device=cpu, dtype=torch.float32)


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    """A small network with a prior of another shape, refreshed once, and positions drawn by surprise."""
    path = tmp_path / "prior.pb.gz"
    shape = NetworkShape(24, layers=2, heads=3, ffn=16, policy_width=16, value_channels=4, value_hidden=16)
    write_network(random_network(shape, seed=3), path)
    tables = {
        **SETTINGS,
        "data": {"main": ["none"], "holdout": 0.1, "surprise": 0.5, "follow_s": 1.0},
        "targets": {"prior": str(path), "prior_refreshes": 1},
    }
    return train_config(tables, "test")


def trainer_of(config: TrainConfig, tables: list[PositionTable]) -> Trainer:
    return Trainer(config, tables, Group(0, 1, torch.device("cpu")))


def checkpoint_of(trainer: Trainer) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(trainer.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


@pytest.mark.parametrize("joins_at", [1, 4])
def test_resumed_run_ends_the_same_when_shards_joined(config: TrainConfig, joins_at: int) -> None:
    first, second, third = (table(seed, config.data) for seed in (1, 2, 3))
    progress = [0.1, 0.2, 0.3, 0.5, 0.6, 0.8]  # the prior is refreshed at 0.35
    whole = trainer_of(config, [first])
    whole.set_targets()
    stopped: dict[str, Any] = {}
    for number, share in enumerate(progress):
        if number == joins_at:
            whole.join([second, third])
        if number == 5:
            stopped = checkpoint_of(whole)
        whole.step(share)
    going_on = trainer_of(config, [first, second, third])
    going_on.load_state_dict(stopped)
    going_on.set_targets()
    going_on.step(progress[5])
    assert torch.equal(going_on.table.policy, whole.table.policy)
    assert torch.equal(going_on.table.surprise, whole.table.surprise)
    for one, other in zip(whole.heads.parameters(), going_on.heads.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_next_batches_are_of_old_and_new_positions(config: TrainConfig) -> None:
    trainer = trainer_of(config, [table(1, config.data)])
    trainer.set_targets()
    trainer.sampler.next()
    before = len(trainer.table)
    trainer.join([table(2, config.data)])
    rows, _ = trainer.sampler.next()
    assert trainer.sampler.epoch == 1
    assert (rows < before).any()
    assert (rows >= before).any()
    assert torch.isfinite(trainer.table.surprise).all()
    counts = trainer.table.move_start.diff()
    owner = torch.arange(len(counts)).repeat_interleave(counts)
    sums = torch.zeros(len(counts)).index_add(0, owner, trainer.table.policy.float())
    assert torch.allclose(sums, torch.ones(len(sums)), atol=0.01)


def test_a_table_that_grew_is_the_one_that_was_made_at_once() -> None:
    data = DataSettings(holdout=0.2, follow_s=1.0)
    parts = [table(seed, data) for seed in (1, 2, 3)]
    grown = device_table(parts[:1], data)
    grown.join(parts[1:2])
    grown.join(parts[2:])
    changed = device_table([parts[1], parts[0], parts[2]], data)
    changed.join([parts[1]], leaving={0})
    for made, wanted in ((grown, parts), (changed, [parts[0], parts[2], parts[1]])):
        at_once = device_table(wanted, data)
        rows = torch.arange(len(at_once))
        assert made.sizes == at_once.sizes
        assert torch.equal(made.taken, at_once.taken)
        for one, other in zip(made.gathered(rows), at_once.gathered(rows), strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num())


def test_position_is_taken_once_and_never_when_held_out() -> None:
    data = DataSettings(holdout=0.2, won_share=1.0, decided_share=1.0)
    parts = [table(seed, data, games=20) for seed in (1, 2)]
    grown = device_table(parts[:1], data)
    grown.join(parts[1:])
    trained = grown.keys[(grown.taken > 0) & ~grown.held_out].tolist()
    measured = set(grown.keys[grown.held_out].tolist())
    assert len(set(trained)) == len(trained)
    assert not set(trained) & measured
    assert set(trained) | measured == set(grown.keys.tolist())
    assert grown.held_out[: len(parts[0])].any()
    assert grown.held_out[len(parts[0]) :].any()
    assert (device_table(parts, replace(data, unique=False)).taken > 0).all()


def test_the_first_of_each_key() -> None:
    keys = torch.tensor([5, -3, 5, 7, -3, 7])
    held_out = torch.tensor([False, False, True, False, False, False])
    assert first_of_each(keys, held_out).tolist() == [False, True, True, True, False, False]


def follower_of(folder: Path, **data: Any) -> Follower:
    settings = DataSettings(main=(str(folder),), follow_s=1e-6, **data)
    reader = ShardReader(settings, TargetSettings(), input_format=1, seed=1)
    return Follower(settings, reader, shard_files(settings))


def next_found(follower: Follower) -> NewShards:
    while not follower.ready():
        pass
    return follower.take()


def test_a_shard_that_is_not_all_there_is_named_and_joins_when_it_is(tmp_path: Path) -> None:
    follower = follower_of(tmp_path / "data")
    write_shard(tmp_path / "whole", labelled_shard(4, 20))
    data = (tmp_path / "whole").read_bytes()
    path = tmp_path / "data" / "a.shard"
    path.parent.mkdir()
    path.write_bytes(data[:-100])
    found = next_found(follower)
    assert not found.shards
    assert [str(path) in note for note in found.notes] == [True]
    with path.open("ab") as file:
        file.write(data[-100:])
    found = next_found(follower)
    assert [shard.file for shard in found.shards] == [str(path)]
    assert not found.notes
    write_shard(path.with_name("b.shard"), labelled_shard(4, 20, seed=2))
    assert [Path(shard.file).name for shard in next_found(follower).shards] == ["b.shard"]
    follower.close()


def test_the_newest_shards_push_the_oldest_out_of_the_window(tmp_path: Path) -> None:
    positions = 0
    for name in "ab":
        shard = labelled_shard(4, 20, seed=ord(name))
        positions += shard.positions + shard.branches
        write_shard(tmp_path / f"{name}.shard", shard)
    follower = follower_of(tmp_path, window=positions)
    write_shard(tmp_path / "c.shard", labelled_shard(4, 20, seed=9))
    found = next_found(follower)
    assert [Path(shard.file).name for shard in found.shards] == ["c.shard"]
    assert [Path(file).name for file in found.leaving] == ["a.shard"]
    follower.close()


def grown_run(folder: Path, **run: Any) -> Path:
    """A run that a shard has joined and that was left then; returns its settings."""
    data, endless = {"holdout": 0.1, "follow_s": 0.1}, {"positions": 10**9}
    config = write_run(folder, data=data, run={"checkpoint_s": 1.0, **run}, schedule=endless)
    with start_training("train", config) as process:
        read_until(process, "step ")
        write_shard(folder / "data" / "1.shard", labelled_shard(8, 40, seed=7))
        read_until(process, "1 shards joined, 0 left")
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert "checkpoint after" in process.stdout.read()  # up to the end of its last process
    return config


def checkpoint(folder: Path) -> dict[str, Any]:
    state = load_checkpoint(folder)
    assert state is not None
    return state


def weights(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = checkpoint(folder)["trainer"]["heads"]
    return found


def test_run_continues_with_a_joined_shard_after_any_end(tmp_path: Path) -> None:
    config = grown_run(tmp_path)
    state = checkpoint(tmp_path / "run")
    assert [Path(path).name for path in state["shards"]] == ["0.shard", "1.shard"]
    flags = ("--set", f"schedule.positions={64 * (state['trainer']['steps'] + 60)}")
    killed = tmp_path / "killed"
    shutil.copytree(tmp_path / "run", killed)
    run_training("train", config, *flags)
    with start_training("train", config, *flags, "--output", killed) as process:
        read_until(process, "checkpoint after")
        process.kill()
    run_training("train", config, *flags, "--output", killed)
    one, other = weights(tmp_path / "run"), weights(killed)
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    tables = [json.loads(line)["table"] for line in lines]
    assert tables[0] < tables[-1]

    (tmp_path / "data" / "1.shard").unlink()
    refused = run_training("train", config, "--output", killed, status=1)
    assert "1.shard, which was in the run, is gone" in refused.stderr


def test_a_shard_joins_on_all_processes_at_the_same_step(tmp_path: Path) -> None:
    config = grown_run(tmp_path, processes=2)
    alone = tmp_path / "alone"
    shutil.copytree(tmp_path / "run", alone)
    steps = checkpoint(alone)["trainer"]["steps"]
    flags = ("--set", f"schedule.positions={64 * (steps + 3)}")
    run_training("train", config, *flags)
    run_training("train", config, *flags, "--output", alone, "--set", "run.processes=1")
    one, other = weights(alone), weights(tmp_path / "run")
    for name in one:
        assert np.allclose(one[name].numpy(), other[name].numpy(), atol=2e-3), name

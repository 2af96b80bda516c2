# SPDX-License-Identifier: GPL-3.0-or-later
"""A network's policy and W D L come into shards through the evaluator, and training takes them from there."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.apps.shards.shard import Shard, ShardError, read_shard, write_shard
from engine.apps.shards.shard_coding import NAT_STEPS, wdl_of
from engine.apps.shards.shard_games import shard_of
from engine.options import Options
from engine.search.player.network_constants import ON_CPU
from evaluator.backends.common.batches import expand_planes
from evaluator.backends.reference.backend import forward
from evaluator.network import load_network
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.writer import write_network
from tests.engine.apps.selfplay.games import played_game
from tests.engine.network_operator import operated
from tests.training.labels import labelled_shard
from tests.training.run.runs import SETTINGS, run_training
from training.commands import annotate as annotate_command
from training.config import DataSettings, TargetSettings, train_config
from training.data.annotations import prior_identity
from training.data.chunks import games_of
from training.data.packed import unpack_positions
from training.data.reading import encoded_positions, table_of
from training.data.records import parse_records
from training.errors import TrainingError
from training.evaluation import EncodedRows, Evaluation
from training.searches import SEARCHES, improved_policy

pytestmark = pytest.mark.integration

SHAPE = NetworkShape(16, layers=1, heads=2, ffn=16, policy_width=16, value_channels=4, value_hidden=16)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "small.pb.gz"
    write_network(random_network(SHAPE, seed=3), path)
    return path


@pytest.fixture(scope="module")
def folder(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two annotated shards, beside one that is damaged."""
    folder = tmp_path_factory.mktemp("shards")
    write_shard(folder / "a.shard", labelled_shard(3, 20, seed=1))
    write_shard(folder / "b.shard", labelled_shard(2, 20, seed=2))
    (folder / "c.shard").write_bytes((folder / "a.shard").read_bytes()[:-9])
    done = run_training(
        "annotate", folder, "--weights", network, "--backend", "onnx", "--threads", 1, "--json", status=1
    )
    summary = json.loads(done.stdout)
    assert summary["shards"] == 2
    assert list(summary["broken"]) == [str(folder / "c.shard")]
    assert "c.shard: " in done.stderr
    return folder


def test_annotations_are_what_the_network_says(network: Path, folder: Path) -> None:
    shard = read_shard(folder / "a.shard")
    spec = load_network(network)
    assert shard.annotated_by == spec.content_hash
    packed, start, moves = encoded_positions(shard, int(spec.input_format))
    said = forward(spec, expand_planes(unpack_positions(packed)).astype(np.float32))
    assert np.allclose(wdl_of(shard.columns["prior_wdl"]), said.value, atol=1 / 255)
    for row in range(len(packed)):
        mine = slice(start[row], start[row + 1])
        logits = said.policy[row, moves[mine]].astype(np.float64)
        nats = np.log(np.exp(logits).sum()) - logits
        assert np.allclose(shard.columns["prior"][mine] / NAT_STEPS, nats, atol=0.04)


def test_annotated_games_are_skipped_for_one_network(network: Path, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.shard"
    path.write_bytes((folder / "a.shard").read_bytes())
    arguments = ("annotate", path, "--backend", "onnx", "--threads", 1, "--json", "--weights")
    again = json.loads(run_training(*arguments, network).stdout)
    assert (again["shards"], again["passed_over"]) == (0, 1)
    other = tmp_path / "other.pb.gz"
    write_network(random_network(SHAPE, seed=4), other)
    assert json.loads(run_training(*arguments, other).stdout)["shards"] == 1
    assert read_shard(path).annotated_by == load_network(other).content_hash


def test_searches_are_annotated_for_training_with_their_nodes(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.shard"
    whole = labelled_shard(4, 12, seed=5)
    write_shard(path, whole)
    arguments = ("annotate", path, "--backend", "onnx", "--threads", 1, "--json", "--weights", network)
    first = run_training(*arguments, "--nodes", 40, "--workers", 2)
    assert json.loads(first.stdout)["positions"] == 48 + whole.branches
    assert json.loads(run_training(*arguments, "--nodes", 40).stdout)["passed_over"] == 1
    shard = read_shard(path)
    assert shard.annotated_by == prior_identity(str(network), 40)
    packed, start, _ = encoded_positions(shard, 1)
    shares = np.exp(-shard.columns["prior"].astype(np.float64) / NAT_STEPS)
    totals = np.add.reduceat(shares, start[:-1])
    assert np.allclose(totals, 1, atol=0.14)  # quarters of a nat
    for prior_nodes, used in ((40, True), (20, True), (41, False), (0, False)):
        targets, prior = TargetSettings(prior_nodes=prior_nodes), prior_identity(str(network), prior_nodes)
        table = table_of(shard, DataSettings(), targets, input_format=1, prior=prior)
        assert table.annotated.all() == used
    assert len(packed) == 48 + whole.branches


def test_a_searched_shard_has_the_moves_of_its_positions_in_order(network: Path, tmp_path: Path) -> None:
    """A search of two nodes knows one move's value, so it compares none: its policy is the network's."""
    path, plain = tmp_path / "a.shard", tmp_path / "b.shard"
    for each in (path, plain):
        write_shard(each, labelled_shard(3, 20, seed=6))
    arguments = ("--backend", "onnx", "--threads", 1, "--weights", network)
    run_training("annotate", path, *arguments, "--nodes", 2)
    run_training("annotate", plain, *arguments)
    searched, policy = (read_shard(each).columns["prior"].astype(int) for each in (path, plain))
    common = policy < 3.5 * NAT_STEPS  # others are stored in whole nats
    assert common.any()
    assert np.abs(searched - policy)[common].max() <= NAT_STEPS / 8 + 1  # half of a quarter, and a step


def test_searches_have_the_constants_of_the_network_that_is_named(network: Path) -> None:
    shipped = annotate_command._with_constants(SEARCHES, "wavefront-cpu")
    assert {name: getattr(shipped, name) for name in ON_CPU} == ON_CPU
    assert annotate_command._with_constants(SEARCHES, str(network)) == SEARCHES
    with pytest.raises(TrainingError, match=r"none\.pb\.gz"):
        annotate_command._with_constants(SEARCHES, "none.pb.gz")


def test_search_policy_follows_values_with_more_nodes() -> None:
    policy, q = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.3, 0.1])
    few, many = (np.exp(improved_policy(policy, q, nodes)) for nodes in (16, 1600))
    assert np.allclose([few.sum(), many.sum()], 1, atol=1e-5)
    assert policy[1] < few[1] < many[1]
    assert np.isclose(few[0] / few[2], 6, rtol=1e-4)  # moves of one value keep the network's ratio
    assert np.allclose(np.exp(improved_policy(policy, np.full(3, -1.0), 100)), policy, rtol=1e-4)


def test_a_shard_with_an_illegal_move_is_left_as_it_is(network: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "a.shard", tmp_path / "b.shard"
    shard = labelled_shard(3, 12, seed=7)
    write_shard(good, shard)
    moves = shard.columns["moves"].copy()
    moves[14] = 0o7700
    write_shard(bad, replace(shard, columns={**shard.columns, "moves": moves}))
    before = bad.read_bytes()
    flags = ("--weights", network, "--backend", "onnx", "--threads", 1, "--json", "--nodes", 4)
    done = run_training("annotate", tmp_path, *flags, status=1)
    summary = json.loads(done.stdout)
    assert summary["shards"] == 1
    assert list(summary["broken"]) == [str(bad)]
    assert bad.read_bytes() == before


def test_annotate_uses_the_prior_of_training_by_default(tmp_path: Path) -> None:
    path = tmp_path / "a.shard"
    write_shard(path, labelled_shard(1, 8))
    run_training("annotate", path, "--backend", "onnx", "--threads", 1)
    assert read_shard(path).annotated_by == prior_identity(TargetSettings().prior)
    assert "no backend 'foo'" in run_training("annotate", path, "--backend", "foo", status=1).stderr


def test_a_table_takes_annotations_of_its_prior_only(folder: Path) -> None:
    shard = read_shard(folder / "a.shard")
    settings = TargetSettings(prior_value_share=1.0)
    mine = table_of(shard, DataSettings(), settings, input_format=1, prior=shard.annotated_by)
    assert mine.annotated.all()
    assert np.array_equal(mine.prior, shard.columns["prior"])
    assert np.allclose(mine.wdl, wdl_of(shard.columns["prior_wdl"]))
    other = table_of(shard, DataSettings(), settings, input_format=1, prior="0" * 64)
    assert not other.annotated.any()
    assert not np.allclose(other.wdl, mine.wdl)


def test_larger_searches_replace_those_of_self_play(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "played.shard"
    (columns,) = games_of(parse_records(played_game(seed=3, input_format=1).tobytes()))
    write_shard(path, shard_of([columns], "self-play"))
    flags = ("--weights", str(network), "--backend", "onnx", "--threads", "1", "--workers", "1")
    run_training("annotate", path, "--nodes", "16", *flags)
    shard = read_shard(path)
    data, prior = DataSettings(), prior_identity(str(network), 16)
    searched = TargetSettings(prior_nodes=16, result_share=0.0)
    table = table_of(shard, data, searched, input_format=1, prior=prior)
    assert np.allclose(table.wdl, wdl_of(shard.columns["prior_wdl"]))
    logits = -shard.columns["prior"].astype(np.float32) / NAT_STEPS
    assert table.shares is not None
    assert np.corrcoef(np.exp(logits), table.shares)[0, 1] > 0.99
    # A sure move has 0 nats; the others 2.5 each.
    sure = np.full(len(logits), 40, np.uint8)
    sure[table.move_start[:-1]] = 0
    certain = replace(shard, columns={**shard.columns, "prior": sure})
    surer = table_of(certain, data, searched, input_format=1, prior=prior)
    others = (np.diff(table.move_start) - 1) * np.exp(-40 / NAT_STEPS)
    assert surer.shares is not None
    assert np.allclose(surer.shares[table.move_start[:-1]], 1 / (1 + others), atol=1e-3)
    # It surprises the network, not itself.
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
    from training.run.processes import Group
    from training.run.trainer import Trainer

    document = {"targets": {"prior": str(network), "prior_nodes": 16}, "data": {"surprise": 0.5}}
    trainer = Trainer(train_config(SETTINGS | document, "test"), [surer], Group(0, 1, torch.device("cpu")))
    trainer.set_targets()
    assert trainer.table.surprise.median() > 0.7
    # An annotation by the network alone knows less than the search that chose the move.
    alone = replace(searched, prior_nodes=0)
    played = table_of(shard, data, alone, input_format=1, prior=shard.annotated_by)
    assert played.shares is not None and not np.allclose(played.shares, table.shares, atol=0.05)
    assert np.allclose(played.wdl, wdl_of(shard.columns["wdl"]))


def test_annotations_that_do_not_fit_are_refused(folder: Path) -> None:
    shard = read_shard(folder / "a.shard")
    shorter = replace(shard, columns={**shard.columns, "prior": shard.columns["prior"][:-1]})
    with pytest.raises(ShardError, match="prior does not fit"):
        table_of(shorter, DataSettings(), TargetSettings(), input_format=1, prior=shard.annotated_by)
    with pytest.raises(ShardError, match="prior is missing"):
        Shard(shard.kind, labelled_shard(3, 20).columns, annotated_by="x").check()


def test_targets_of_annotations_are_those_of_the_network(network: Path, folder: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
    from training.model.network import AttentionNetwork
    from training.run.device_table import DeviceTable

    shard = read_shard(folder / "a.shard")
    table = table_of(shard, DataSettings(), TargetSettings(), input_format=1, prior=shard.annotated_by)
    device = DeviceTable(
        [table], DataSettings(), input_format=1, device=torch.device("cpu"), dtype=torch.float32
    )
    assert not device.unannotated()
    device.set_policy(AttentionNetwork(load_network(network)).eval(), TargetSettings())
    evaluated = device.policy.clone()
    device.set_policy(None, TargetSettings(), annotations=True)
    assert torch.allclose(device.policy.float(), evaluated.float(), atol=0.02)
    device.set_policy(None, TargetSettings())
    assert not torch.allclose(device.policy.float(), evaluated.float(), atol=0.02)


@pytest.mark.parametrize("nodes", [0, 40])
def test_refresh_replaces_network_as_prior_and_no_searches(network: Path, folder: Path, nodes: int) -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
    from training.run.processes import Group
    from training.run.trainer import Trainer

    targets = {"prior": str(network), "prior_nodes": nodes, "prior_refreshes": 1}
    config = train_config({**SETTINGS, "targets": targets, "data": {"main": ["none"]}}, "test")
    shard = replace(read_shard(folder / "a.shard"), annotated_by=prior_identity(str(network), nodes))
    table = table_of(shard, config.data, config.targets, input_format=1, prior=shard.annotated_by)
    trainer = Trainer(config, [table], Group(0, 1, torch.device("cpu")))
    trainer.set_targets()
    before = trainer.table.policy.clone()
    trainer.step(0.5)
    assert trainer.refreshes == 1
    assert torch.equal(trainer.table.policy, before) == bool(nodes)


def test_an_evaluation_ends_when_the_network_changes(tmp_path: Path, folder: Path) -> None:
    """Of one that has begun: what it returned before is another network's."""
    packed, start, moves = encoded_positions(read_shard(folder / "a.shard"), 1)
    rows = EncodedRows(packed, start, moves)
    with operated(tmp_path) as operator, Evaluation(operator.options, operator.log) as evaluation:
        evaluation.evaluate(rows)
        operator.reload()
        with pytest.raises(TrainingError, match="network is now"):
            evaluation.evaluate(rows)


def test_each_device_annotates_its_share_of_the_shards(network: Path, tmp_path: Path) -> None:
    for number in range(3):
        write_shard(tmp_path / f"{number}.shard", labelled_shard(2, 12, seed=number + 1))
    paths = sorted(tmp_path.glob("*.shard"))
    options = Options(weights=str(network), threads=1)
    assert annotate_command._on_each(["onnx", "onnx:int8=false"], paths, options, 4, 1) == 0
    assert {read_shard(path).annotated_by for path in paths} == {prior_identity(str(network), 4)}

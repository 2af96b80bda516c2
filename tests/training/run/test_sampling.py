# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions whose target surprises the prior are taken more often, the same ones in a run that goes on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.writer import write_network
from tests.training.labels import labelled_shard
from tests.training.run.runs import SETTINGS
from training.config import TrainConfig, train_config
from training.data.reading import table_of

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.run.processes import Group  # noqa: E402
from training.run.sampling import Sampler  # noqa: E402
from training.run.trainer import Trainer  # noqa: E402
from training.targets import SURPRISE_LIMIT, surprise_weights  # noqa: E402


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    """With a prior, and a head that exists in training only."""
    path = tmp_path / "prior.pb.gz"
    shape = NetworkShape(16, layers=1, heads=2, ffn=16, policy_width=16, value_channels=4, value_hidden=16)
    write_network(random_network(shape, seed=3), path)
    tables = {
        **SETTINGS,
        "data": {"main": ["none"], "holdout": 0.1, "surprise": 0.5, "unique": False},
        "targets": {"prior": str(path), "prior_refreshes": 1},
        "losses": {"value_bins": 0.3},
    }
    return train_config(tables, "test")


def trainer_of(config: TrainConfig) -> Trainer:
    table = table_of(labelled_shard(8, 40), config.data, config.targets, input_format=1)
    trainer = Trainer(config, [table], Group(0, 1, torch.device("cpu")))
    trainer.set_targets()
    return trainer


def test_an_epoch_takes_positions_by_their_surprise(config: TrainConfig) -> None:
    trainer = trainer_of(config)
    table = trainer.table
    assert torch.isfinite(table.surprise).all()
    assert table.surprise.std() > 0
    taken = torch.zeros(len(table))
    for seed in range(60):
        sampler = Sampler(table, 8, seed)
        sampler.next()
        order = sampler._order
        assert order is not None
        taken += torch.bincount(order, minlength=len(table))
    assert (taken[table.held_out] == 0).all()
    mine = ~table.held_out
    assert torch.allclose(taken[mine] / 60, table.times()[mine], atol=0.3)
    assert np.corrcoef(taken[mine], table.surprise[mine])[0, 1] > 0.8


def test_without_surprise_every_position_is_taken_once(config: TrainConfig) -> None:
    plain = replace(config, data=replace(config.data, surprise=0.0))
    trainer = trainer_of(plain)
    trainer.sampler.next()
    order = trainer.sampler._order
    assert order is not None
    rows = (~trainer.table.held_out).nonzero().squeeze(1)
    decided = trainer.table.taken[rows] < 1
    assert not decided.any()
    assert order.sort().values.tolist() == rows.tolist()


def test_a_run_that_continues_takes_the_same_positions(config: TrainConfig) -> None:
    whole, stopped = trainer_of(config), trainer_of(config)
    progress = [0.1, 0.2, 0.3, 0.5, 0.6, 0.8]  # a refresh of the prior comes at 0.35
    for share in progress:
        whole.step(share)
    for share in progress[:4]:
        stopped.step(share)
    assert stopped.refreshes == 1
    going_on = trainer_of(config)
    going_on.load_state_dict(stopped.state_dict())
    going_on.set_targets()
    for share in progress[4:]:
        going_on.step(share)
    assert going_on.sampler.epoch == whole.sampler.epoch == 1
    for one, other in zip(whole.heads.parameters(), going_on.heads.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_head_of_bins_learns_and_stays_behind(config: TrainConfig) -> None:
    trainer = trainer_of(config)
    for _ in range(3):
        trainer.step(0.1)
    first = trainer.figures()["value_bins"]
    for _ in range(30):
        trainer.step(0.1)
    assert trainer.figures()["value_bins"] < first
    trainer.network.spec()


def test_surprise_is_limited_and_without_a_prior_it_is_the_mean() -> None:
    surprise = torch.tensor([0.0, 1.0, 2.0, 100.0, torch.nan])
    weights = surprise_weights(surprise, 0.5)
    mean = 103 / 4
    assert weights[:3].tolist() == pytest.approx([0.5, 0.5 + 0.5 / mean, 0.5 + 1 / mean])
    assert weights[3] == pytest.approx(0.5 + 0.5 * min(SURPRISE_LIMIT, 100 / mean))
    assert weights[4] == 1

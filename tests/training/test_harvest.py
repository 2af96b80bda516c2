# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions of the policy's games: one of several plies, with history, as the network sees them."""

import asyncio
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.apps.campaign import QuietView
from engine.apps.shards.shard import read_shard
from engine.apps.shards.shard_coding import NO_SHARE, wdl_of
from engine.options import Options
from tests.engine.network_operator import operated
from training.data.reading import encoded_positions
from training.errors import TrainingError
from training.evaluation import EncodedRows, Evaluation
from training.harvest import HELD_OUT, Harvest, HarvestCampaign, HarvestSettings

pytestmark = pytest.mark.integration


def harvested(harvest: Harvest) -> HarvestCampaign:
    campaign = HarvestCampaign(harvest, lambda games: None)
    asyncio.run(campaign.run(QuietView(lambda text: None)))
    return campaign


def test_harvest_keeps_few_positions_of_each_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.harvest.MOST_PLIES", 90)
    with operated(tmp_path / "evaluator") as operator:
        address = operator.evaluator.address
        settings = HarvestSettings(games=12, one_of=20, workers=1)
        harvest = Harvest((address,), str(tmp_path / "out"), settings, digest="abc", games_a_block=6)
        campaign = harvested(harvest)
        taken, held_out = (read_shard(path) for path in harvest.files(0))
        assert campaign.positions == taken.positions + read_shard(harvest.files(1)[0]).positions > 20
        assert set(held_out.columns["number"].tolist()) == {0}
        assert not any(number % HELD_OUT == 0 for number in taken.columns["number"].tolist())
        assert max(Counter(taken.columns["number"].tolist()).values()) <= 90 // 20
        assert (taken.columns["plies"] - taken.columns["prefix"] == 1).all()
        with Evaluation(Options(evaluator=address), lambda text: None) as evaluation:
            rows = EncodedRows(*encoded_positions(taken, evaluation.network.input_format))
            logits, wdl = evaluation.evaluate(rows)
        assert np.allclose(wdl_of(taken.columns["wdl"]), wdl, atol=1 / 128)
        best = rows.start[:-1] + [int(np.argmax(each)) for each in np.split(logits, rows.start[1:-1])]
        stored = np.flatnonzero(taken.columns["policy"] != NO_SHARE)
        assert len(stored) == len(best)
        assert np.mean(stored == best) > 0.95  # A repetition before the kept history is lost.
        campaign.describe()
        found = tomllib.loads(harvest.manifest.read_text())
        assert (found["network"], found["games"], found["train_positions"]) == ("abc", 12, campaign.positions)
        assert harvested(harvest).positions == 0  # All blocks are there.
        with pytest.raises(TrainingError, match="seed: 1 -> 2"):
            harvested(replace(harvest, settings=replace(settings, seed=2)))
        fewer = replace(settings, games=6)
        again = replace(harvest, output=str(tmp_path / "again"), settings=fewer)
        harvested(again)
        assert again.files(0)[0].read_bytes() == harvest.files(0)[0].read_bytes()

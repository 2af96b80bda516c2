# SPDX-License-Identifier: GPL-3.0-or-later
"""On a GPU a compiled step in bf16 says what the processor says in float32, within what bf16 can tell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluator.backends.common.batches import expand_planes
from tests.training.labels import labelled_shard
from tests.training.run.runs import SETTINGS
from training.config import train_config
from training.data.packed import unpack_positions
from training.data.reading import table_of

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.model.losses import NAMES  # noqa: E402
from training.run.processes import Group  # noqa: E402
from training.run.trainer import Trainer  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("attention", ["explicit", "kernel"])
def test_a_step_on_the_gpu_is_the_processors(tmp_path: Path, attention: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU here")
    config = train_config({**SETTINGS, "data": {"main": [str(tmp_path)], "holdout": 0.1}}, "test")
    table = table_of(labelled_shard(12, 40), config.data, config.targets, input_format=1)
    figures = []
    for device in ("cpu", "cuda"):
        method = attention if device == "cuda" else "explicit"
        method_config = replace(config, run=replace(config.run, attention=method))
        trainer = Trainer(method_config, [table], Group(0, 1, torch.device(device)))
        trainer.set_targets()
        rows = torch.arange(64, device=device)
        chances = torch.full((64, 3), 0.7, device=device)
        tokens = trainer.table.batch(rows, None).tokens.float().cpu().numpy()
        planes = expand_planes(unpack_positions(table.packed)[:64]).transpose(0, 2, 1)
        assert np.array_equal(tokens, planes)
        loss, found = (trainer._compiled or trainer._loss)(trainer.table.gathered(rows), chances)
        loss.backward()
        assert all(values.grad.isfinite().all() for values in trainer.optimiser.parameters)
        for _ in range(3):
            trainer.step(0.5)
        figures.append(dict(zip(NAMES, found.tolist(), strict=True)))
    for name in ("loss", "policy", "value", "soft_policy", "short_term"):
        assert figures[1][name] == pytest.approx(figures[0][name], rel=0.02), name

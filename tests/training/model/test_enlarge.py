# SPDX-License-Identifier: GPL-3.0-or-later
"""Larger networks that say what smaller ones say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from evaluator.backends.reference.backend import forward
from evaluator.network import NetworkSpec, load_network
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.spec import AttentionBody
from evaluator.network.writer import write_network
from tests.shapes import EVERY_PRODUCT
from tests.training.run.runs import run_training
from training.errors import TrainingError
from training.export import probe_planes
from training.model.enlarge import enlarged

SHAPE = replace(EVERY_PRODUCT, layers=3)


def off(one: NetworkSpec, other: NetworkSpec) -> tuple[float, float]:
    """How far policy logits and q of two networks are apart, over their spread."""
    planes = probe_planes()[:16]
    a, b = forward(one, planes), forward(other, planes)
    return (
        float(np.abs(a.policy - b.policy).max() / a.policy.std()),
        float(np.abs(a.value - b.value).max() / a.value.std()),
    )


@pytest.mark.parametrize("shape", [SHAPE, replace(SHAPE, dense_embedding=0, smolgen=None, moves_left=False)])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_more_channels_and_heads_say_the_same(shape: NetworkShape, times: int) -> None:
    small = random_network(shape, 1)
    large = enlarged(small, times=times)
    assert isinstance(large.body, AttentionBody)
    assert large.body.encoders[0].attention.heads == 2 * times
    assert large.body.encoders[0].norm1.gammas.shape == (32 * times,)
    assert max(off(small, large)) < 2e-4


def test_copies_are_read_unequally() -> None:
    body = enlarged(random_network(SHAPE, 1)).body
    assert isinstance(body, AttentionBody)
    weights = body.encoders[0].ffn.dense1.weights
    assert np.corrcoef(weights[:, :32].ravel(), weights[:, 32:].ravel())[0, 1] < 0.2


def test_layers_put_in_between_change_little() -> None:
    small = random_network(SHAPE, 1)
    large = enlarged(small, layers=5)
    assert isinstance(large.body, AttentionBody)
    idle = [not layer.ffn.dense2.weights.any() for layer in large.body.encoders]
    assert idle == [False, True, False, True, False]
    assert {layer.alpha for layer in large.body.encoders} == {10**-0.25}
    other = random_network(SHAPE, 2)
    assert max(off(small, large)) < 0.2 * max(off(small, other))


def test_enlarging_is_rejected_for_other_shapes() -> None:
    with pytest.raises(TrainingError, match="only attention networks"):
        enlarged(random_network("tiny-resnet"))
    with pytest.raises(TrainingError, match=r"3 layers, .*2"):
        enlarged(random_network(SHAPE), layers=2)


def test_the_command_writes_a_file_to_begin_with(tmp_path: Path) -> None:
    small, large = tmp_path / "small.pb.gz", tmp_path / "large.pb.gz"
    write_network(random_network(SHAPE, 1), small)
    run_training("enlarge", small, "--output", large, "--policy-scale", 2)
    planes = probe_planes()[:8]
    before, after = forward(load_network(small), planes), forward(load_network(large), planes)
    assert np.abs(2 * before.policy - after.policy).max() < 0.01 * before.policy.std()

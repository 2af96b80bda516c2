# SPDX-License-Identifier: GPL-3.0-or-later
"""Golden networks go through PyTorch and back: the same outputs, and the same network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator.backends.common.batches import expand_planes
from evaluator.backends.reference.backend import forward
from evaluator.network import load_network
from evaluator.network.arithmetic import Array
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.schema import WeightsEncoding
from evaluator.network.spec import AttentionBody
from evaluator.network.writer import write_network
from tests.evaluator.golden import golden_cases, load_golden
from training.errors import TrainingError

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.config import ModelSettings  # noqa: E402
from training.model.initial import initial_network  # noqa: E402
from training.model.network import AttentionNetwork, policy_source  # noqa: E402


def tokens_of(planes: Array) -> Any:
    return torch.from_numpy(np.ascontiguousarray(planes.transpose(0, 2, 1)))


@pytest.mark.parametrize("case", golden_cases())
def test_a_golden_network_says_in_pytorch_what_lc0_says(case: str) -> None:
    golden = load_golden(case)
    network = load_network(golden.path, policy_head=golden.policy_head, value_head=golden.value_head)
    if not isinstance(network.body, AttentionBody) or network.body.tower is not None:
        with pytest.raises(TrainingError, match="attention"):
            AttentionNetwork(network)
        return
    model = AttentionNetwork(network)
    with torch.no_grad():
        out = model(tokens_of(expand_planes(golden.positions)))
    assert np.abs(out.policy.numpy()[:, policy_source()] - golden.policy).max() < 1e-4
    value = out.value.softmax(1).numpy() if network.value.wdl else out.value.numpy()
    q = value[:, 0] - value[:, 2] if network.value.wdl else value[:, 0]
    assert np.abs(q - golden.q).max() < 1e-5
    if out.moves_left is not None:
        assert np.abs(out.moves_left.numpy() - golden.m).max() < 1e-3


def test_a_network_comes_back_from_pytorch_through_a_file(tmp_path: Path) -> None:
    golden = load_golden("data/attn_128x4_smolgen")
    network = load_network(golden.path)
    path = tmp_path / "again.pb.gz"
    write_network(AttentionNetwork(network).spec(), path, encodings=(WeightsEncoding.FLOAT32,))
    planes = expand_planes(golden.positions)
    assert np.array_equal(forward(load_network(path), planes).policy, forward(network, planes).policy)


@pytest.mark.parametrize("start", ["", "shipped"])
def test_a_scale_multiplies_every_policy_logit(start: str) -> None:
    settings = ModelSettings(start=start, width=32, layers=1, heads=2, ffn=32, policy_width=16)
    model = initial_network(settings, seed=3)
    planes = expand_planes(load_golden("data/attn_128x4_smolgen").positions[:4])
    plain, scaled = forward(model.spec(), planes).policy, forward(model.spec(policy_scale=1.3), planes).policy
    assert np.allclose(scaled, 1.3 * plain, rtol=1e-5, atol=1e-5)


def test_fresh_network_follows_shape_and_seed() -> None:
    settings = ModelSettings(width=48, layers=2, heads=3, ffn=40, policy_width=16, smolgen_hidden=0)
    one, same, other = (initial_network(settings, seed) for seed in (1, 1, 2))
    body = one.spec().body
    assert isinstance(body, AttentionBody)
    assert len(body.encoders) == 2
    assert body.encoders[0].attention.heads == 3
    assert body.encoders[0].attention.smolgen is None
    assert body.encoders[0].ffn.dense1.weights.shape == (40, 48)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)


def test_a_residual_tower_under_an_attention_body_is_refused() -> None:
    shape = NetworkShape(16, blocks=1, layers=1, heads=2, policy_width=16)
    with pytest.raises(TrainingError, match="attention body"):
        AttentionNetwork(random_network(shape))

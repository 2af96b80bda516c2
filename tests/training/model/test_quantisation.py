"""Training rounds as the processor's int8 pass does, and gradients pass through."""

from __future__ import annotations

import numpy as np
import pytest

from evaluator.backends.batches import expand_planes
from evaluator.backends.onnx.backend import OnnxBackend
from evaluator.backends.probe import probe_batch
from evaluator.network.random_network import NetworkShape, random_network

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.model.network import AttentionNetwork, policy_source  # noqa: E402
from training.model.quantisation import quantised_inputs, quantised_weights  # noqa: E402

SHAPE = NetworkShape(
    32,
    layers=2,
    heads=2,
    ffn=48,
    smolgen=(4, 16, 8),
    dense_embedding=8,
    multihead=True,
    policy_width=32,
    value_channels=4,
    value_hidden=16,
)


def test_a_pass_in_training_is_that_of_the_int8_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random network is changed far more by 8 bits than the two passes differ."""
    monkeypatch.setattr("evaluator.backends.onnx.backend.MAX_LOGITS_ERROR", 10.0)
    monkeypatch.setattr("evaluator.backends.onnx.backend.MAX_VALUE_ERROR", 1.0)
    spec = random_network(SHAPE, seed=5)
    probe = probe_batch(32, seed=3)
    with OnnxBackend(spec, threads=1, int8=True) as backend, backend.chosen_session() as session:
        expected = backend._run(session, probe)[0]
    network = AttentionNetwork(spec).eval()
    planes = expand_planes(probe.positions).astype(np.float32)
    tokens = torch.from_numpy(np.ascontiguousarray(planes.transpose(0, 2, 1)))
    with torch.no_grad():
        exact = network(tokens).policy.numpy()[:, policy_source()]
        network.quantise()
        rounded = network(tokens).policy.numpy()[:, policy_source()]
        network.quantise(False)
        assert np.array_equal(network(tokens).policy.numpy()[:, policy_source()], exact)
    changed = np.sqrt(np.square(exact - expected).mean())
    off = np.sqrt(np.square(rounded - expected).mean())
    assert changed > 0.01
    assert off < changed / 5


def test_inputs_have_256_values_and_weights_255() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 200, generator=generator) + 0.5
    rounded = quantised_inputs(x)
    assert len(rounded.unique()) <= 256
    assert (rounded - x).abs().max() <= (x.max() - x.min()) / 255 * 0.51
    assert quantised_inputs(torch.zeros(3, 3)).tolist() == torch.zeros(3, 3).tolist()
    assert 0 in quantised_inputs(torch.tensor([0.0, 3.0, 5.0]))
    weights = torch.randn(5, 300, generator=generator) * torch.tensor([[1.0], [10], [0.1], [1], [0]])
    for row, exact in zip(quantised_weights(weights), weights, strict=True):
        assert len(row.unique()) <= 255
        assert (row - exact).abs().max() <= exact.abs().max() / 127 * 0.51


def test_gradients_pass_as_if_nothing_were_rounded() -> None:
    weights = torch.randn(4, 6, requires_grad=True)
    x = torch.randn(3, 6, requires_grad=True)
    (quantised_inputs(x) @ quantised_weights(weights).t()).sum().backward()
    assert weights.grad is not None and x.grad is not None
    assert torch.allclose(weights.grad, quantised_inputs(x).detach().sum(0).expand(4, 6))
    assert torch.allclose(x.grad, quantised_weights(weights).detach().sum(0).expand(3, 6))

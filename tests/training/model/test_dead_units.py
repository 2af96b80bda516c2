# SPDX-License-Identifier: GPL-3.0-or-later
"""Dead units of feed-forward layers are found, come back, and are begun anew with no change of answers."""

from typing import Any

import pytest

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.config import LossSettings, ModelSettings, OptimiserSettings  # noqa: E402
from training.model.dead_units import dead_shares, pass_gradients, revive, watched  # noqa: E402
from training.model.initial import initial_network  # noqa: E402
from training.model.layers import activate, with_slope  # noqa: E402
from training.model.losses import TrainedHeads  # noqa: E402
from training.model.network import AttentionNetwork  # noqa: E402
from training.optim.optimiser import Optimiser  # noqa: E402

SMALL = ModelSettings(
    width=16, layers=2, heads=2, ffn=24, policy_width=16, smolgen_hidden=4, dense_embedding=4
)
DEAD = 10


def a_network(**changed: Any) -> AttentionNetwork:
    """With the first ten units of the first encoder's feed-forward layer dead."""
    network = initial_network(
        ModelSettings(**{name: getattr(SMALL, name) for name in SMALL.__slots__} | changed), 1
    )
    with torch.no_grad():
        network.encoders[0].ffn.dense1.biases[:DEAD] = -100
    return network


def positions(count: int = 6) -> Any:
    return (torch.rand(count, 64, 112, generator=torch.Generator().manual_seed(7)) < 0.1).float()


@pytest.mark.parametrize("activation", ["relu", "relu_squared"])
def test_dead_units_are_counted_layer_by_layer(activation: str) -> None:
    network = a_network(ffn_activation=activation)
    shares = dead_shares(network, positions().split(2))
    assert shares == {"embedding": 0.0, "encoder 1": pytest.approx(DEAD / 24), "encoder 2": 0.0}
    assert not network.encoders[0].ffn.dense1._forward_hooks


def test_activations_that_are_never_silent_have_no_dead_units() -> None:
    assert dead_shares(a_network(ffn_activation="mish"), [positions()]) == {}


def test_restarted_units_live_and_change_no_output() -> None:
    network, again = a_network(), a_network()
    before = network(positions())
    for each in (network, again):
        assert revive(each, watched(each, [positions()]), torch.Generator().manual_seed(3)) == DEAD
    for one, other in zip(network(positions()), before, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    assert dead_shares(network, [positions()])["encoder 1"] == 0
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("activation", ["relu", "relu_squared"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_the_gradient_of_units_dead_or_nearly_so_is_another(activation: str, dtype: str) -> None:
    kind = a_network(ffn_activation=activation).encoders[0].ffn.dense1.activation
    values = torch.randn(3, 64, 20, generator=torch.Generator().manual_seed(2)).to(getattr(torch, dtype))
    values[..., :5] = -values[..., :5].abs()
    values = values.repeat(6, 1, 1)
    values[0, 0, 4] = 1
    x, exact = values.clone().requires_grad_(), values.clone().requires_grad_()
    said = with_slope(kind, x, 0.125)
    assert torch.equal(said, activate(kind, exact))
    said.sum().backward()
    activate(kind, exact).sum().backward()
    assert torch.equal(x.grad[..., 5:], exact.grad[..., 5:])
    assert exact.grad[..., :4].abs().max() == 0
    assert (x.grad[..., :5][values[..., :5] <= 0] == 0.125).all()
    assert torch.equal(x.grad[0, 0, 4], exact.grad[0, 0, 4])


@pytest.mark.parametrize(("slope", "dead"), [(0.0, True), (0.05, False)])
def test_dead_units_come_back_where_gradients_have_a_slope(slope: float, dead: bool) -> None:
    network = a_network()
    with torch.no_grad():  # the whole layer, not far below 0, and in the others' way
        network.encoders[0].ffn.dense1.biases.fill_(-6)
    pass_gradients(network, slope)
    heads = TrainedHeads(network, LossSettings(), torch.Generator().manual_seed(1))
    optimiser = Optimiser(heads, OptimiserSettings(muon_rate=0.05, adam_rate=0.01, weight_decay=0.0))
    tokens = positions(4)
    wanted = torch.randn(4, 64, 16, generator=torch.Generator().manual_seed(5))
    assert dead_shares(network, [tokens])["encoder 1"] == 1
    for step in range(60):
        loss = (network.body(tokens) - wanted).square().mean()
        loss.backward()
        for values in heads.parameters():
            values.grad = torch.zeros_like(values) if values.grad is None else values.grad
        optimiser.step(1.0, step)
    assert (dead_shares(network, [tokens])["encoder 1"] == 1) == dead


def test_a_network_whose_attention_cannot_be_copied_is_watched() -> None:
    class Kernel:
        """As compiled ones are."""

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("cannot be copied")

    network = a_network()
    network.encoders[0].attention._kernel = Kernel()
    assert dead_shares(network, [positions()])["encoder 1"] == pytest.approx(DEAD / 24)

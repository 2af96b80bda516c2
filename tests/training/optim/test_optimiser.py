# SPDX-License-Identifier: GPL-3.0-or-later
"""What moves the weights: orthogonal steps, what decays, the mean, and the schedule."""

import pytest

from training.config import LossSettings, ModelSettings, OptimiserSettings, ScheduleSettings

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")

from training.model.initial import initial_network  # noqa: E402
from training.model.losses import TrainedHeads  # noqa: E402
from training.optim.muon import Muon, orthogonalised  # noqa: E402
from training.optim.optimiser import Optimiser, falling, rate_factor, refreshes_due  # noqa: E402

SMALL = ModelSettings(width=16, layers=1, heads=2, ffn=24, policy_width=16, smolgen_hidden=4)


@pytest.mark.parametrize("shape", [(3, 24, 16), (1, 16, 40), (2, 20, 20)])
def test_singular_values_come_near_one(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalised(matrices))
    assert values.min() > 0.5
    assert values.max() < 1.4


def test_muon_steps_each_of_stacked_matrices_by_itself() -> None:
    generator = torch.Generator().manual_seed(2)
    stacked = torch.nn.Parameter(torch.zeros(3, 8, 8))
    alone = [torch.nn.Parameter(torch.zeros(8, 8)) for _ in range(3)]
    stacked.grad = torch.randn(3, 8, 8, generator=generator)
    for number, values in enumerate(alone):
        values.grad = stacked.grad[number].clone()
    for parameters in ([stacked], alone):
        muon = Muon(parameters, momentum=0.9, weight_decay=0.0)
        muon.rate = 0.1
        muon.step()
    assert torch.allclose(stacked, torch.stack(list(alone)), atol=1e-6)
    assert stacked.abs().max() > 0


def test_matrices_decay_and_biases_norms_and_gates_do_not() -> None:
    heads = TrainedHeads(initial_network(SMALL, 1), LossSettings(), torch.Generator().manual_seed(1))
    optimiser = Optimiser(heads, OptimiserSettings(weight_decay=1.0))
    before = {name: values.detach().clone() for name, values in heads.named_parameters()}
    for values in heads.parameters():
        values.grad = torch.zeros_like(values)
    optimiser.step(1.0, 0)
    for name, values in heads.named_parameters():
        matrix = name.endswith(("weights", "promotion", "compress")) and before[name].any()
        assert (values.norm() < before[name].norm()) == bool(matrix), name


def test_the_mean_is_exchanged_and_comes_back() -> None:
    heads = TrainedHeads(initial_network(SMALL, 1), LossSettings(), torch.Generator().manual_seed(1))
    optimiser = Optimiser(heads, OptimiserSettings())
    for values in heads.parameters():
        values.grad = torch.ones_like(values)
    optimiser.step(1.0, 1000)
    weights = [values.detach().clone() for values in optimiser.parameters]
    mean = [values.clone() for values in optimiser.mean]
    with pytest.raises(ZeroDivisionError), optimiser.averaged():
        assert all(torch.equal(a, b) for a, b in zip(optimiser.parameters, mean, strict=True))
        raise ZeroDivisionError
    assert all(torch.equal(a, b) for a, b in zip(optimiser.parameters, weights, strict=True))


def test_the_rate_rises_is_constant_and_falls_to_nothing() -> None:
    schedule = ScheduleSettings(warmup_steps=10, decay=0.25)
    assert rate_factor(schedule, 0, 0.0) == pytest.approx(0.1)
    assert rate_factor(schedule, 100, 0.5) == 1
    assert rate_factor(schedule, 100, 0.875) == pytest.approx(0.5)
    assert rate_factor(schedule, 100, 1.0) == 0
    assert falling(ScheduleSettings(decay=0.0), 0.99) == 1


def test_refreshes_are_spread_over_the_constant_rate() -> None:
    schedule = ScheduleSettings(decay=0.25)
    due = [refreshes_due(schedule, 2, progress) for progress in (0.0, 0.24, 0.25, 0.5, 0.9)]
    assert due == [0, 0, 1, 2, 2]
    assert refreshes_due(schedule, 0, 0.5) == 0

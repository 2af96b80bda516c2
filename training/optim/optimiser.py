# SPDX-License-Identifier: GPL-3.0-or-later
"""The optimiser of a run: Muon, AdamW, clipping, the mean of the weights, and the schedule of their rates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from training.config import OptimiserSettings, ScheduleSettings
from training.model.losses import TrainedHeads
from training.optim.muon import Muon


def rate_factor(settings: ScheduleSettings, step: int, progress: float) -> float:
    """Return the factor of learning rates: warm-up, constant rate, linear decay to zero (Hu et al. 2024,
    MiniCPM), so that a run can be continued from its phase of constant rate.

    step: from 0. progress: finished share of the run.
    """
    rising = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    return rising * falling(settings, progress)


def falling(settings: ScheduleSettings, progress: float) -> float:
    """Return the factor of the decay: 1 until it starts."""
    if not settings.decay or progress <= 1 - settings.decay:
        return 1.0
    return max(0.0, (1 - progress) / settings.decay)


def refreshes_due(settings: ScheduleSettings, refreshes: int, progress: float) -> int:
    """Return how many refreshes are due; they are spread evenly over the time of constant rate."""
    if not refreshes:
        return 0
    constant = 1 - settings.decay
    return min(refreshes, int(progress / constant * (refreshes + 1) + 1e-9)) if constant > 0 else 0


MUON_PARTS = (
    "qkv_weights",
    "output.weights",
    "ffn.dense1.weights",
    "ffn.dense2.weights",
    "smolgen.compress",
    "smolgen.dense1.weights",
    "smolgen.dense2.weights",
)
"""Name endings of the matrices within layers, which Muon updates."""

DECAYING = ("weights", "promotion")
"""Name endings of parameters with weight decay: matrices, but not biases, norms and gates."""


class Optimiser:
    """Updates the weights of `heads` and keeps their mean.
    Equal weights and gradients on several processes stay equal."""

    def __init__(self, heads: TrainedHeads, settings: OptimiserSettings) -> None:
        self._settings = settings
        named = list(heads.named_parameters())
        self.parameters: list[Tensor] = [values for _, values in named]
        muon = [
            v
            for name, v in named
            if (name.endswith(MUON_PARTS) and "encoders" in name)
            or (name.startswith("network.tail_ffn") and v.ndim == 2)
        ]
        chosen = {id(values) for values in muon}
        rest = [(name, values) for name, values in named if id(values) not in chosen]
        self._muon = Muon(muon, momentum=settings.muon_momentum, weight_decay=settings.weight_decay)
        self._adam = torch.optim.AdamW(
            [
                {
                    "params": [v for name, v in rest if name.endswith(DECAYING)],
                    "weight_decay": settings.weight_decay,
                },
                {"params": [v for name, v in rest if not name.endswith(DECAYING)], "weight_decay": 0.0},
            ],
            lr=settings.adam_rate,
            betas=(settings.adam_beta1, settings.adam_beta2),
            fused=self.parameters[0].is_cuda,
        )
        self.mean = [values.detach().clone() for values in self.parameters]

    def step(self, factor: float, steps_done: int) -> Tensor:
        """Update the weights, clear gradients and return their norm. factor: of the learning rates."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self._settings.clip, foreach=True)
        self._muon.rate = self._settings.muon_rate * factor
        for group in self._adam.param_groups:
            group["lr"] = self._settings.adam_rate * factor
        self._muon.step()
        self._adam.step()
        for values in self.parameters:
            values.grad = None
        # The decay is smaller in early steps, to discard the first weights quickly.
        decay = min(self._settings.ema, (1 + steps_done) / (10 + steps_done))
        torch._foreach_lerp_(self.mean, [values.detach() for values in self.parameters], 1 - decay)
        return norm

    @torch.no_grad()
    def swap_mean(self) -> None:
        """Swap the weights and their mean; a second call reverts it."""
        for values, mean in zip(self.parameters, self.mean, strict=True):
            kept = values.detach().clone()
            values.copy_(mean)
            mean.copy_(kept)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Use the mean as weights within the block."""
        self.swap_mean()
        try:
            yield
        finally:
            self.swap_mean()

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self._muon.state_dict(), "adam": self._adam.state_dict(), "mean": self.mean}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._muon.load_state_dict(state["muon"])
        self._adam.load_state_dict(state["adam"])
        for mean, saved in zip(self.mean, state["mean"], strict=True):
            mean.copy_(saved)

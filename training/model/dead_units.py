# SPDX-License-Identifier: GPL-3.0-or-later
"""Dead units: units of feed-forward layers that are 0 for every square of every position.

The gradient of relu and its square is zero for them, so they stay dead. `revive` reinitialises a network's
dead units; `pass_gradients` lets units that die during a run recover.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evaluator.network import Activation
from training.model.layers import DenseModule, FeedForwardModule
from training.model.network import AttentionNetwork

MORTAL = (Activation.RELU, Activation.RELU_SQUARED)
"""Activations that are exactly 0 for negative inputs."""


@dataclass(slots=True)
class LayerStatistics:
    """Statistics of a layer's first product. live: bool [units], positive at least once.
    inputs: float32 [channels], mean over `count` squares."""

    live: Tensor
    inputs: Tensor
    count: int = 0


def layers_of(network: AttentionNetwork) -> dict[str, FeedForwardModule]:
    """Return the feed-forward layers that can have dead units, by their names in reports."""
    named: dict[str, FeedForwardModule | None] = {"embedding": network.tail_ffn}
    for kind, encoders in (("encoder", network.encoders), ("policy encoder", network.policy_encoders)):
        named |= {f"{kind} {number}": layer.ffn for number, layer in enumerate(encoders, 1)}
    return {name: ffn for name, ffn in named.items() if ffn is not None and ffn.dense1.activation in MORTAL}


def pass_gradients(network: AttentionNetwork, slope: float) -> None:
    """Give units that are 0 almost everywhere the gradient of a slope; 0 disables it."""
    for ffn in layers_of(network).values():
        ffn.dense1.slope = slope


@torch.no_grad()
def watched(network: AttentionNetwork, batches: Iterable[Tensor]) -> dict[str, LayerStatistics]:
    """Return statistics of the layers for tokens [n, 64, 112], on the CPU."""
    # On a copy: a hook on the network itself would recompile its compiled steps.
    copy = AttentionNetwork(network.template)
    copy.load_state_dict(network.state_dict())
    copy.to(network.embedding.weights.device)
    seen: dict[str, LayerStatistics] = {}
    for name, ffn in layers_of(copy).items():
        units, channels = ffn.dense1.weights.shape
        device = ffn.dense1.weights.device
        seen[name] = LayerStatistics(
            torch.zeros(units, dtype=torch.bool, device=device), torch.zeros(channels, device=device)
        )
        ffn.dense1.register_forward_hook(_watch(seen[name]))
    for tokens in batches:
        copy(tokens)
    return {
        name: LayerStatistics(part.live.cpu(), part.inputs.cpu(), part.count) for name, part in seen.items()
    }


def _watch(seen: LayerStatistics) -> Any:
    def watch(layer: DenseModule, given: tuple[Tensor], said: Tensor) -> None:
        inputs = given[0].flatten(0, -2).float()
        seen.live |= (said > 0).flatten(0, -2).any(0)
        seen.count += len(inputs)
        seen.inputs += (inputs.mean(0) - seen.inputs) * (len(inputs) / seen.count)

    return watch


def dead_shares(network: AttentionNetwork, batches: Iterable[Tensor]) -> dict[str, float]:
    """Return the share of dead units of each layer, measured on tokens [n, 64, 112]."""
    return {name: 1 - float(seen.live.float().mean()) for name, seen in watched(network, batches).items()}


@torch.no_grad()
def revive(network: AttentionNetwork, seen: dict[str, LayerStatistics], generator: torch.Generator) -> int:
    """Reinitialise dead units without changing the network's results, and return their number.

    They get weights of Xavier's variance, a bias that passes about half of the squares, and output weights 0.
    generator: of the CPU. Equal `seen` and generators change networks equally.
    """
    count = 0
    for name, ffn in layers_of(network).items():
        weights, biases = ffn.dense1.weights, ffn.dense1.biases
        dead = (~seen[name].live).nonzero().squeeze(1)
        rows = torch.randn(weights.shape, generator=generator)[dead] * (2 / sum(weights.shape)) ** 0.5
        weights[dead.to(weights.device)] = rows.to(weights)
        biases[dead.to(weights.device)] = -(rows @ seen[name].inputs).to(biases)
        ffn.dense2.weights[:, dead.to(weights.device)] = 0
        count += len(dead)
    return count

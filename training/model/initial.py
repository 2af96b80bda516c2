# SPDX-License-Identifier: GPL-3.0-or-later
"""The initial network of training: fresh weights of a given shape, or a copy of a file's network."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from evaluator.network import Activation, InputFormat, NetworkShape, load_network, random_network
from training.config import ModelSettings
from training.model.layers import DenseModule, LayerNormModule
from training.model.network import AttentionNetwork


def initial_network(settings: ModelSettings, seed: int) -> AttentionNetwork:
    """Return the network to start training with. Raises NetworkError."""
    if settings.start:
        return AttentionNetwork(load_network(settings.start))
    network = AttentionNetwork(random_network(shape_of(settings), seed))
    _begin_afresh(network, torch.Generator().manual_seed(seed))
    return network


def shape_of(settings: ModelSettings) -> NetworkShape:
    """Return the settings as a shape of `evaluator.network`."""
    smolgen = (settings.smolgen_hidden, settings.smolgen_dense, settings.smolgen_gen)
    return NetworkShape(
        settings.width,
        layers=settings.layers,
        heads=settings.heads,
        ffn=settings.ffn,
        smolgen=smolgen if settings.smolgen_hidden else None,
        dense_embedding=settings.dense_embedding,
        policy_width=settings.policy_width,
        value_channels=settings.value_channels,
        value_hidden=settings.value_hidden,
        activation=Activation(settings.activation),
        ffn_activation=Activation(settings.ffn_activation),
        smolgen_activation=Activation(settings.smolgen_activation),
        input_format=InputFormat(int(settings.input_format)),
        multihead=settings.dense_embedding > 0,
    )


def _begin_afresh(network: AttentionNetwork, generator: torch.Generator) -> None:
    """Initialise weights with Xavier's variance, and norms and gates as identity.
    In post-norm encoders the variance is multiplied by beta^2 of DeepNet (Wang et al. 2022):
    beta = (8 layers)^(-1/4) for values, outputs and feed-forward layers."""
    layers = max(1, len(network.encoders))
    beta = (8 * layers) ** -0.25

    def normal(values: torch.Tensor, gain: float = 1.0) -> None:
        outputs, inputs = values.shape[-2:]
        deviation = gain * (2 / (inputs + outputs)) ** 0.5
        values.copy_(torch.randn(values.shape, generator=generator) * deviation)

    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, DenseModule):
                normal(module.weights)
                module.biases.zero_()
            elif isinstance(module, LayerNormModule):
                module.gammas.fill_(1)
                module.betas.zero_()
        for encoder in (*network.encoders, *network.policy_encoders):
            attention = encoder.attention
            for which, gain in enumerate((1.0, 1.0, beta)):
                normal(attention.qkv_weights[which], gain)
            attention.qkv_biases.zero_()
            normal(attention.output.weights, beta)
            normal(encoder.ffn.dense1.weights, beta)
            normal(encoder.ffn.dense2.weights, beta)
            if attention.smolgen is not None:
                normal(attention.smolgen.compress)
        if network.position_weights is not None:
            normal(network.position_weights, 0.1)  # initially, attention depends on what the squares hold
        if network.multiply is not None and network.add is not None:
            network.multiply.fill_(1)
            network.add.zero_()
        normal(network.policy.promotion)
        if network.moves_left is not None:
            network.moves_left.dense2.biases.fill_(60)  # plies; a relu must not start dead
    # The random network's name does not describe the trained one.
    network.template = replace(network.template, name="network")


def count_parameters(network: nn.Module) -> int:
    return sum(values.numel() for values in network.parameters())

# SPDX-License-Identifier: GPL-3.0-or-later
"""Shapes of small networks that several tests use."""

from evaluator.network.random_network import NetworkShape
from evaluator.network.schema import PolicyFormat
from evaluator.network.spec import Activation

EVERY_PRODUCT = NetworkShape(
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
"""With every kind of product that is computed in 8 bits."""

KINDS = {
    "classical policy": NetworkShape(16, blocks=2, se=8, policy=PolicyFormat.CLASSICAL, value_channels=4),
    "no squeeze and excitation": NetworkShape(
        16, blocks=2, policy=PolicyFormat.CONVOLUTION, value_channels=4
    ),
    "mish tower": NetworkShape(
        16, blocks=2, se=4, policy=PolicyFormat.CONVOLUTION, wdl=False, moves_left=False
    ),
    "tower with attention policy": NetworkShape(
        32, blocks=1, se=4, policy_embedding=24, policy_width=16, policy_layers=2, ffn=40
    ),
    "tower under an attention body": NetworkShape(32, blocks=2, layers=2, se=4, ffn=40, policy_width=24),
    "policy encoders on an attention body": NetworkShape(
        32, layers=2, ffn=40, policy_embedding=48, policy_layers=1
    ),
    "attention wider than the embedding": NetworkShape(32, layers=2, model=64, heads=8, ffn=40),
    "dense embedding": NetworkShape(32, layers=2, ffn=40, dense_embedding=8, smolgen=(4, 16, 8)),
    "dense embedding without gates": NetworkShape(32, layers=2, ffn=40, dense_embedding=4, gating=False),
    # sigmoid(0) is not 0: what pads a head must not count in the norm.
    "widths that fill no chunk of 8": NetworkShape(
        36,
        layers=1,
        heads=3,
        model=30,
        ffn=42,
        smolgen=(3, 10, 5),
        smolgen_activation=Activation.SIGMOID,
        dense_embedding=5,
        policy_width=20,
        value_channels=3,
        value_hidden=18,
    ),
    "one head of depth 144": NetworkShape(32, layers=1, heads=1, model=144, ffn=40),
    "relu everywhere": NetworkShape(
        32, layers=2, ffn=40, activation=Activation.RELU, ffn_activation=Activation.RELU, wdl=False
    ),
    **{
        f"ffn and smolgen {activation.value}": NetworkShape(
            32, layers=1, ffn=40, smolgen=(4, 16, 8), ffn_activation=activation, smolgen_activation=activation
        )
        for activation in Activation
    },
}
"""With every kind of layer."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""Shapes of small networks that several tests use."""

from evaluator.network.random_network import NetworkShape

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

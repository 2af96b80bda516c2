# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plain data of a network refuses, so that no backend meets it."""

from dataclasses import replace
from typing import Any

import pytest

from evaluator.network.random_network import random_network
from evaluator.network.spec import (
    Activation,
    Attention,
    AttentionBody,
    AttentionPolicyHead,
    Dense,
    ResidualTower,
)


def active(layer: Dense) -> Dense:
    return replace(layer, activation=Activation.RELU)


def replace_layer(part: Attention | AttentionPolicyHead, name: str, layer: Dense) -> None:
    changes: dict[str, Any] = {name: layer}
    replace(part, **changes)


def test_layers_before_a_sum_have_no_activation() -> None:
    network = random_network("tiny-attention")
    assert isinstance(network.body, AttentionBody)
    assert isinstance(network.policy, AttentionPolicyHead)
    encoder, policy = network.body.encoders[0], network.policy
    for name in ("q", "k", "v", "output"):
        with pytest.raises(ValueError, match="no activation, not relu"):
            replace_layer(encoder.attention, name, active(getattr(encoder.attention, name)))
    with pytest.raises(ValueError, match="no activation"):
        replace(encoder.ffn, dense2=active(encoder.ffn.dense2))
    for name in ("q", "k"):
        with pytest.raises(ValueError, match="no activation"):
            replace_layer(policy, name, active(getattr(policy, name)))
    tower = random_network("tiny-resnet").body
    assert isinstance(tower, ResidualTower)
    block = tower.blocks[0]
    assert block.se is not None
    with pytest.raises(ValueError, match="no activation"):
        replace(block, conv2=replace(block.conv2, activation=Activation.RELU))
    with pytest.raises(ValueError, match="no activation"):
        replace(block.se, excite=active(block.se.excite))

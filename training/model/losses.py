# SPDX-License-Identifier: GPL-3.0-or-later
"""The losses of training, and the auxiliary heads that exist only in training."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from evaluator.network import Dense
from training import targets
from training.config import LossSettings
from training.model.layers import DenseModule
from training.model.network import AttentionNetwork, PolicyPairs

MOVES_LEFT_UNIT = 20.0
"""Unit in plies of the Huber loss of moves left."""

NAMES = (
    "loss",
    "policy",
    "policy_kl",
    "value",
    "moves_left",
    "soft_policy",
    "short_term",
    "value_error",
    "value_bins",
    "best_move",
    "q_error",
)
"""Figures of `TrainedHeads`: losses, then the share of best moves found and the squared error of q."""


class Batch(NamedTuple):
    """B positions with up to K legal moves.
    tokens: [B, 64, 112]. entries: int64 [B, K], index of each move in `Outputs.policy`; legal: bool [B, K];
    policy: float32 [B, K], the target, 0 for illegal moves. wdl, next_wdl: [B, 3]. plies_left: [B], NaN if
    unknown. best: int64 [B], index among the moves."""

    tokens: Tensor
    entries: Tensor
    legal: Tensor
    policy: Tensor
    wdl: Tensor
    next_wdl: Tensor
    plies_left: Tensor
    best: Tensor


class TrainedHeads(nn.Module):
    """The network with auxiliary heads, which are not exported. They predict a policy at a high temperature,
    the WDL of the next plies, the error of q, and, if weighted, the expected score in bins.
    A call returns the loss and the figures NAMES, float32, without gradient."""

    def __init__(self, network: AttentionNetwork, settings: LossSettings, generator: torch.Generator) -> None:
        super().__init__()
        self.network = network
        self.settings = settings
        width = network.policy.q.weights.shape[1]
        depth = network.policy.q.weights.shape[0]
        hidden = network.value.dense1.weights.shape[0]

        def dense(inputs: int, outputs: int) -> Dense:
            weights = torch.randn(outputs, inputs, generator=generator) * (2 / (inputs + outputs)) ** 0.5
            return Dense(weights.numpy(), np.zeros(outputs, np.float32))

        promotion = np.zeros((4, depth), np.float32)
        self.soft_policy = PolicyPairs(dense(width, depth), dense(width, depth), promotion)
        self.short_term = DenseModule(dense(hidden, 3))
        self.value_error = DenseModule(dense(hidden, 1))
        self.value_bins = DenseModule(dense(hidden, targets.VALUE_BINS)) if settings.value_bins else None

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        settings = self.settings
        out = self.network(batch.tokens)
        log_policy = over_moves(out.policy, batch)
        policy = _cross_entropy(log_policy, batch.policy)
        entropy = -(batch.policy * batch.policy.clamp(min=1e-12).log()).sum(1).mean()
        if out.value.shape[1] == 3:
            value = _cross_entropy(out.value.log_softmax(1), batch.wdl)
            wdl = out.value.softmax(1)
            q = wdl[:, 0] - wdl[:, 2]
        else:
            q = out.value[:, 0]
            value = (q - (batch.wdl[:, 0] - batch.wdl[:, 2])).square().mean()
        error = (q - (batch.wdl[:, 0] - batch.wdl[:, 2])).square()

        soft = targets.softened_policy(batch.policy, settings.soft_temperature)
        soft_policy = _cross_entropy(over_moves(self.soft_policy(out.policy_embedding), batch), soft)
        short_term = _cross_entropy(self.short_term(out.value_hidden).log_softmax(1), batch.next_wdl)
        expected = functional.softplus(self.value_error(out.value_hidden).squeeze(1))
        value_error = functional.smooth_l1_loss(expected, error.detach(), beta=0.1)
        value_bins = q.new_zeros(())
        if self.value_bins is not None:
            bins = targets.binned_value(batch.wdl)
            value_bins = _cross_entropy(self.value_bins(out.value_hidden).log_softmax(1), bins)
        moves_left = q.new_zeros(())
        if out.moves_left is not None:
            known = ~batch.plies_left.isnan()
            plies = batch.plies_left.nan_to_num() / MOVES_LEFT_UNIT
            each = functional.smooth_l1_loss(out.moves_left / MOVES_LEFT_UNIT, plies, reduction="none")
            moves_left = (each * known).mean()
        loss = (
            settings.policy * policy
            + settings.value * value
            + settings.moves_left * moves_left
            + settings.soft_policy * soft_policy
            + settings.short_term * short_term
            + settings.value_error * value_error
            + settings.value_bins * value_bins
        )
        found = (log_policy.argmax(1) == batch.best).float().mean()
        figures = torch.stack(
            [
                loss,
                policy,
                policy - entropy,
                value,
                moves_left,
                soft_policy,
                short_term,
                value_error,
                value_bins,
                found,
                error.mean(),
            ]
        )
        return loss, figures.detach()


def over_moves(logits: Tensor, batch: Batch) -> Tensor:
    """Map logits [B, 4288] to log probabilities of the legal moves, [B, K]; -1e9 for padding."""
    chosen = logits.gather(1, batch.entries).masked_fill(~batch.legal, -1e9)
    return chosen.log_softmax(1)


def _cross_entropy(logarithms: Tensor, target: Tensor) -> Tensor:
    return -(target * logarithms).sum(1).mean()

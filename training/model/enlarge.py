# SPDX-License-Identifier: GPL-3.0-or-later
"""Enlarges a network without changing its results, as a start for training.

Net2Net (Chen, Goodfellow and Shlens 2016): every channel of a square is copied several times. Layers that
read the copies divide their weights among them, unevenly and at random, so that the copies learn different
things. A norm over copies equals the norm over one, so results differ only by rounding. Inserted layers
initially add nothing, and their norms change almost nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evaluator.network import spec
from training.errors import TrainingError


def enlarged(
    network: spec.NetworkSpec, *, times: int = 2, layers: int = 0, seed: int = 1
) -> spec.NetworkSpec:
    """Return the network with `times` as many channels, attention heads and outputs of smolgen's layers.

    Feed-forward layers, the embedding of the whole board, and hidden layers of the value and moves-left heads
    keep their widths. layers: number of encoders; 0: unchanged.
    Raises TrainingError for a network without attention, and for fewer layers than it has.
    """
    body, policy = network.body, network.policy
    if (
        not isinstance(body, spec.AttentionBody)
        or body.tower
        or not isinstance(policy, spec.AttentionPolicyHead)
    ):
        raise TrainingError(f"{network.name}: only attention networks can be enlarged")
    if policy.encoders:
        raise TrainingError(f"{network.name}: its policy head has encoders, which cannot be enlarged")
    have, layers = len(body.encoders), layers or len(body.encoders)
    if layers < have:
        raise TrainingError(f"{network.name} has {have} layers, more than {layers}")
    larger = _Larger(times, (2 * layers) ** -0.25, np.random.default_rng(seed))
    encoders = list(map(larger.encoder, body.encoders))
    for number in range(layers - have, 0, -1):  # from the end, evenly spaced
        place = have * number // (layers - have + 1)
        encoders.insert(place, _idle(encoders[max(0, place - 1)]))
    tail, gating = body.tail, body.gating
    if tail is not None:
        tail = replace(
            tail,
            norm1=larger.norm(tail.norm1),
            ffn=larger.feed_forward(tail.ffn, tail.alpha),
            norm2=larger.norm(tail.norm2),
            alpha=larger.alpha,
        )
    if gating is not None:
        gating = spec.Gating(larger.copies(gating.multiply, 1), larger.copies(gating.add, 1))
    value, moves_left = network.value, network.moves_left
    assert isinstance(value.embedding, spec.Dense)
    if moves_left is not None:
        assert isinstance(moves_left.embedding, spec.Dense)
        moves_left = replace(moves_left, embedding=larger.reader(moves_left.embedding))
    # Dot products of copies are `times` as large, but are divided by the root of `times` the channels.
    q, k = larger.both(policy.q, times**-0.5), larger.both(policy.k)
    return replace(
        network,
        body=replace(
            body,
            embedding=larger.writer(body.embedding),
            tail=tail,
            gating=gating,
            encoders=tuple(encoders),
        ),
        policy=spec.AttentionPolicyHead(
            larger.both(policy.embedding), (), q, k, larger.divided(policy.promotion)
        ),
        value=replace(value, embedding=larger.reader(value.embedding)),
        moves_left=moves_left,
    )


class _Larger:
    """Enlarges layers. alpha: of the encoders, which lc0 derives from their number; their outputs are
    rescaled to compensate."""

    def __init__(self, times: int, alpha: float, rng: np.random.Generator) -> None:
        self.times, self.alpha, self._rng = times, alpha, rng

    def copies(self, values: spec.FloatArray, axis: int = 0) -> spec.FloatArray:
        return np.ascontiguousarray(np.concatenate([values] * self.times, axis))

    def divided(self, weights: spec.FloatArray) -> spec.FloatArray:
        """Divide weights [out, in] among copied inputs: same sum, each of the usual size for that width."""
        times = self.times
        noise = self._rng.standard_normal((times, *weights.shape), np.float32)
        noise = (noise - noise.mean(0)) * np.float32(weights.std() * times**-0.5)
        return np.concatenate([weights / np.float32(times) + part for part in noise], axis=1)

    def writer(self, layer: spec.Dense) -> spec.Dense:
        """Copy a layer's outputs."""
        return replace(layer, weights=self.copies(layer.weights), biases=self.copies(layer.biases))

    def reader(self, layer: spec.Dense) -> spec.Dense:
        """Adapt a layer to copied inputs."""
        return replace(layer, weights=self.divided(layer.weights))

    def both(self, layer: spec.Dense, scale: float = 1.0) -> spec.Dense:
        """Copy a layer's outputs, times scale, and adapt it to copied inputs."""
        return _scaled(self.reader(self.writer(layer)), scale)

    def norm(self, layer: spec.LayerNorm) -> spec.LayerNorm:
        return replace(layer, gammas=self.copies(layer.gammas), betas=self.copies(layer.betas))

    def feed_forward(self, layer: spec.FeedForward, alpha: float) -> spec.FeedForward:
        """alpha: previous factor of its output."""
        return spec.FeedForward(
            self.reader(layer.dense1), _scaled(self.writer(layer.dense2), alpha / self.alpha)
        )

    def smolgen(self, layer: spec.Smolgen) -> spec.Smolgen:
        return spec.Smolgen(
            self.divided(layer.compress),
            self.writer(layer.dense1),
            self.norm(layer.norm1),
            self.both(layer.dense2),
            self.norm(layer.norm2),
            layer.position_weights,
        )

    def encoder(self, layer: spec.EncoderLayer) -> spec.EncoderLayer:
        attention = layer.attention
        return spec.EncoderLayer(
            replace(
                attention,
                heads=attention.heads * self.times,
                q=self.both(attention.q),
                k=self.both(attention.k),
                v=self.both(attention.v),
                output=self.both(attention.output, layer.alpha / self.alpha),
                smolgen=None if attention.smolgen is None else self.smolgen(attention.smolgen),
            ),
            self.norm(layer.norm1),
            self.feed_forward(layer.ffn, layer.alpha),
            self.norm(layer.norm2),
            self.alpha,
        )


def _scaled(layer: spec.Dense, scale: float) -> spec.Dense:
    return replace(layer, weights=layer.weights * np.float32(scale), biases=layer.biases * np.float32(scale))


def _idle(before: spec.EncoderLayer) -> spec.EncoderLayer:
    """Return a layer shaped like the previous one that adds nothing.
    Its norms restore the average mean and standard deviation of a square's channels after that layer."""
    gammas, betas = before.norm2.gammas, before.norm2.betas
    deviation = np.full_like(gammas, np.sqrt(np.square(gammas).mean() + betas.var()))
    mean = np.full_like(betas, betas.mean())
    return replace(
        before,
        attention=replace(before.attention, output=_scaled(before.attention.output, 0)),
        norm1=replace(before.norm1, gammas=deviation, betas=mean),
        ffn=replace(before.ffn, dense2=_scaled(before.ffn.dense2, 0)),
        norm2=replace(before.norm2, gammas=deviation.copy(), betas=mean.copy()),
    )

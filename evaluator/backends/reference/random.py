# SPDX-License-Identifier: GPL-3.0-or-later
"""Pseudo-random evaluations from a hash of the position: deterministic, at almost no cost.

For search tests and for benchmarks of everything but the network. The engine's core has a second
implementation with bit-identical float32, so this is a specification. Integers are uint64 and wrap; G
= 0x9E3779B97F4A7C15.

    mix(x):        x ^= x >> 30;  x *= 0xBF58476D1CE4E5B9;
                   x ^= x >> 27;  x *= 0x94D049BB133111EB;
                   x ^= x >> 31
                   (the finaliser of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
                   generators", OOPSLA 2014)
    uniform(x):    float32(x >> 40) * 2^-24, in [0, 1)
    K[p]:          mix((p + 1) * G) | 1, for plane p in 0..111
    hash:          mix(bits(rule50) * 0xD6E8FEB86659FD93 + sum over p of planes[p] * K[p]), where bits is the
                   float32's bit pattern, zero-extended
    wdl:           u = uniform(mix(hash + 1)), v = uniform(mix(hash + 2)), in float32 and in this order:
                   D = 0.5 * v;  W = (1 - D) * u;  L = (1 - D) - W
    moves left:    20 + 100 * uniform(mix(hash + 3))
    logit of policy index i:  4 * uniform(mix(hash + G * (16 + i))) - 2, the product rounded before the
    subtraction
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.common.base import Backend
from evaluator.network.spec import NetworkSpec
from evaluator.settings import DeviceSettings
from protocol.batch import PLANES, EvaluationBatch, PositionBatch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_RULE50 = np.uint64(0xD6E8FEB86659FD93)
_FIRST_MOVE = 16  # smaller multiples are the hash, wdl and moves left

U64Array = NDArray[np.uint64]


def mix(x: U64Array) -> U64Array:
    """Mix the bits of x in place and return it."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def uniform(x: U64Array) -> NDArray[np.float32]:
    """Return the top 24 bits as float32 in [0, 1), exact."""
    # Through int32: numpy converts it to float32 with vector instructions, uint64 one element at a time.
    return (x >> np.uint64(40)).astype(np.int32).astype(np.float32) * np.float32(2.0**-24)


_PLANE_KEYS = mix(np.arange(1, PLANES + 1, dtype=np.uint64) * _GOLDEN) | np.uint64(1)
_VALUE_KEYS = np.arange(1, 4, dtype=np.uint64)[:, None]
_MOVE_KEYS = (np.arange(1858, dtype=np.uint64) + np.uint64(_FIRST_MOVE)) * _GOLDEN


def random_evaluation(batch: PositionBatch) -> EvaluationBatch:
    """Return the evaluations that the specification gives."""
    positions = batch.positions
    rule50 = np.ascontiguousarray(positions["rule50"]).view(np.uint32).astype(np.uint64)
    hashes = mix(rule50 * _RULE50 + positions["planes"] @ _PLANE_KEYS)

    count = len(hashes)
    keys = np.empty(3 * count + len(batch.moves), np.uint64)
    keys[: 3 * count] = (hashes + _VALUE_KEYS).reshape(-1)
    keys[3 * count :] = np.repeat(hashes, batch.move_offsets[1:] - batch.move_offsets[:-1])
    keys[3 * count :] += _MOVE_KEYS[batch.moves]
    drawn = uniform(mix(keys))
    u, v, left = drawn[: 3 * count].reshape(3, count)
    logits = drawn[3 * count :]
    logits *= np.float32(4)
    logits -= np.float32(2)

    one = np.float32(1)
    wdl = np.empty((count, 3), np.float32)
    wdl[:, 1] = np.float32(0.5) * v
    wdl[:, 0] = (one - wdl[:, 1]) * u
    wdl[:, 2] = (one - wdl[:, 1]) - wdl[:, 0]
    return EvaluationBatch(logits, wdl, np.float32(20) + np.float32(100) * left)


NEEDS_NETWORK = False


def unavailable() -> str | None:
    return None


def open(network: NetworkSpec | None, settings: DeviceSettings) -> RandomBackend:
    return RandomBackend()


class RandomBackend(Backend):
    """A backend without a network."""

    name = "random"
    on_host = True
    device = "none"
    max_batch = 16384
    finite = True

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        return random_evaluation(batch)

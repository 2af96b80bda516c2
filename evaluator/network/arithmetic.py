# SPDX-License-Identifier: GPL-3.0-or-later
"""Element-wise and row-wise functions of a network in numpy: activations, layer norm, softmax.

Sums that lose digits (layer norm, softmax) use float64; the result has the dtype of the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.network.spec import Activation, LayerNorm

Array = NDArray[Any]
"""float32 or float64; a forward pass uses one of them throughout."""

_SELU_ALPHA, _SELU_SCALE = 1.67326324, 1.05070098


def layer_norm(layer: LayerNorm, x: Array) -> Array:
    """Normalise over the last axis with biased variance."""
    exact = x.astype(np.float64)
    centred = exact - exact.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    result: Array = (centred / np.sqrt(variance + layer.epsilon) * layer.gammas + layer.betas).astype(x.dtype)
    return result


def softmax(x: Array) -> Array:
    """Return the softmax over the last axis."""
    exact = x.astype(np.float64)
    powers = np.exp(exact - exact.max(axis=-1, keepdims=True))
    result: Array = (powers / powers.sum(axis=-1, keepdims=True)).astype(x.dtype)
    return result


def activate(activation: Activation, x: Array) -> Array:
    """Apply an activation element-wise to any shape."""
    match activation:
        case Activation.NONE:
            return x
        case Activation.RELU:
            return np.maximum(x, 0)
        case Activation.RELU_SQUARED:
            return np.square(np.maximum(x, 0))
        case Activation.TANH:
            return np.tanh(x)
        case Activation.SIGMOID:
            return 1 / (1 + np.exp(-np.maximum(x, -80)))  # e^80 is still finite in float32
        case Activation.SWISH:
            swish: Array = x / (1 + np.exp(-np.maximum(x, -80)))
            return swish
        case Activation.MISH:
            mish: Array = x * np.tanh(np.logaddexp(x, scalar(0, x)))
            return mish
        case Activation.SELU:
            negative = scalar(_SELU_ALPHA, x) * np.expm1(np.minimum(x, 0))
            selu: Array = scalar(_SELU_SCALE, x) * np.where(x > 0, x, negative)
            return selu


def scalar(value: float, x: Array) -> Any:
    """Return a Python float as a scalar of x's dtype, so that float32 stays float32."""
    return x.dtype.type(value)

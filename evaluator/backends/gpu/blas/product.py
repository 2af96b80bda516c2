# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of a matrix product, whatever computes it: shape and fused operations."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.network.spec import Activation


@dataclass(frozen=True, slots=True)
class Product:
    """out [m, n] = activation(a [m, k] b [n, k]^T + bias + residual); see kernels/gemm.hip.

    convolution: a is [m, channels] and k = 9 * channels. followed: a pass of kernels/rows.hip follows in any
    case, in which an activation costs nothing. normalised: that pass does only a layer norm. segment: if not
    0, a row of a is a whole board, and each square contributes this many elements. weight_bits: 8 or 4 if the
    weights also exist as codes, else 0. e4m3: an element of a and b is a pair of e4m3 numbers
    (kernels/e4m3.h), and k counts pairs.
    """

    m: int
    n: int
    k: int
    activation: Activation
    residual: bool = False
    convolution: bool = False
    bias_by_square: bool = False
    bias: bool = True
    followed: bool = False
    segment: int = 0
    weight_bits: int = 0
    normalised: bool = False
    e4m3: bool = False

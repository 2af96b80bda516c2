# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulates the 8-bit products of the CPU's int8 pass, so that training accounts for their error.

The arithmetic is that of evaluator/backends/onnx/quantisation.py, with the ranges of the current batch
instead of the sample's. Gradients ignore the rounding (Jacob et al. 2018, "Quantization and Training of
Neural Networks"; straight-through: Bengio et al. 2013).
"""

from __future__ import annotations

import torch
from torch import Tensor

from evaluator.backends.onnx.quantisation import INPUT_STEPS, LARGEST_WEIGHT, LEAST_SCALE, LEAST_SHARE

LEAST = float(LEAST_SCALE)
SHARE = float(LEAST_SHARE)


def quantised(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return x [..., in] and weights [out, in], both rounded as for their product."""
    values, matrix = x.detach().float(), weights.detach().float()
    flat = values.flatten(0, -2)
    least, largest = flat.amin(dim=0), flat.amax(dim=0)
    multipliers = (_held(_column_weights(matrix)) / _held(torch.maximum(-least, largest))).sqrt()

    low, high = (least * multipliers).amin().clamp(max=0), (largest * multipliers).amax().clamp(min=0)
    scale = torch.where(high > low, high - low, 1) / INPUT_STEPS
    zero = torch.round(-low / scale)
    steps = (torch.round(values * multipliers / scale) + zero).clamp(0, INPUT_STEPS)
    rounded_x = (steps - zero) * scale / multipliers

    divided = matrix / multipliers
    scales = divided.abs().amax(dim=1, keepdim=True).clamp(min=LEAST) / LARGEST_WEIGHT
    rounded_weights = torch.round(divided / scales) * scales * multipliers
    return _straight_through(x, rounded_x), _straight_through(weights, rounded_weights)


def _column_weights(weights: Tensor) -> Tensor:
    magnitudes = weights.abs()
    return (magnitudes / magnitudes.amax(dim=1, keepdim=True).clamp(min=LEAST)).amax(dim=0)


def _held(magnitudes: Tensor) -> Tensor:
    largest = magnitudes.amax()
    return torch.where(largest > 0, magnitudes.maximum(largest * SHARE), 1)


def _straight_through(exact: Tensor, rounded: Tensor) -> Tensor:
    return exact + (rounded.to(exact.dtype) - exact).detach()

"""Products in 8 bits as the processor's int8 pass computes them, so that training sees their error.

As onnxruntime's DynamicQuantizeMatMul in evaluator/backends/onnx: inputs in 8 bits without sign, with one
scale for all of a batch, weights in 8 bits with sign, one scale an output. Gradients pass through as if
nothing were rounded (Jacob et al. 2018, "Quantization and Training of Neural Networks"; straight-through:
Bengio et al. 2013).
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_WEIGHT = 127
INPUT_STEPS = 255
LEAST = 1e-12


def quantised_inputs(x: Tensor) -> Tensor:
    """x, of any shape, rounded to one of 256 values between its least and its largest element; 0 is one."""
    values = x.detach().float()
    least, largest = values.amin().clamp(max=0), values.amax().clamp(min=0)
    scale = ((largest - least) / INPUT_STEPS).clamp(min=LEAST)
    zero = torch.round(-least / scale)
    steps = (torch.round(values / scale) + zero).clamp(0, INPUT_STEPS)
    return _straight_through(x, (steps - zero) * scale)


def quantised_weights(weights: Tensor) -> Tensor:
    """weights [..., outputs, inputs], each output's rounded to multiples of a 127th of its largest."""
    values = weights.detach().float()
    scale = values.abs().amax(dim=-1, keepdim=True).clamp(min=LEAST) / LARGEST_WEIGHT
    return _straight_through(weights, torch.round(values / scale) * scale)


def _straight_through(exact: Tensor, rounded: Tensor) -> Tensor:
    return exact + (rounded.to(exact.dtype) - exact).detach()

# SPDX-License-Identifier: GPL-3.0-or-later
"""Muon (Jordan et al. 2024) for matrices within layers: momentum orthogonalised by Newton-Schulz iterations.

Matrices of one shape are stacked and share one chain of products.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic that drives singular values to about 1 in few steps."""


def orthogonalised(matrices: Tensor) -> Tensor:
    """Return [k, rows, columns] with all singular values near 1; bf16 on a GPU, float32 elsewhere."""
    x = matrices.to(torch.bfloat16) if matrices.is_cuda else matrices
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(x.dtype)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * square @ square) @ x
    return x.transpose(1, 2) if tall else x


class Muon:
    """Muon for parameters whose last two dimensions are a matrix.

    rate: set before each `step`. A matrix's step is rate sqrt(max(1, rows / columns)).
    """

    def __init__(self, parameters: Iterable[Tensor], *, momentum: float, weight_decay: float) -> None:
        groups: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
        for values in parameters:
            groups[(values.shape[-2], values.shape[-1])].append(values)
        self._groups = list(groups.items())
        self._buffers = [
            torch.zeros(sum(_count(v) for v in group), *shape, device=group[0].device)
            for shape, group in self._groups
        ]
        self._momentum = momentum
        self._weight_decay = weight_decay
        self.rate = 0.0

    @torch.no_grad()
    def step(self) -> None:
        """Update the parameters from their gradients."""
        for (shape, group), buffer in zip(self._groups, self._buffers, strict=True):
            gradients = torch.cat([_gradient(values).reshape(-1, *shape) for values in group])
            buffer.lerp_(gradients, 1 - self._momentum)
            update = orthogonalised(gradients.lerp(buffer, self._momentum)).float()
            update = update * (self.rate * max(1.0, shape[0] / shape[1]) ** 0.5)
            pieces = update.split([_count(values) for values in group])
            torch._foreach_mul_(group, 1 - self.rate * self._weight_decay)
            torch._foreach_sub_(group, [p.reshape(v.shape) for p, v in zip(pieces, group, strict=True)])

    def state_dict(self) -> dict[str, Any]:
        return {"buffers": self._buffers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for buffer, saved in zip(self._buffers, state["buffers"], strict=True):
            buffer.copy_(saved)


def _count(values: Tensor) -> int:
    """Return the number of matrices in a parameter."""
    return values.numel() // (values.shape[-2] * values.shape[-1])


def _gradient(values: Tensor) -> Tensor:
    assert values.grad is not None
    return values.grad

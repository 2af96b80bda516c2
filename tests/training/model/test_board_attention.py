# SPDX-License-Identifier: GPL-3.0-or-later
"""The attention kernel of training, interpreted by Triton, and its gradients, beside the formula."""

import os

import pytest

from tests.programs import python

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[train]'")
pytest.importorskip("triton", reason="needs Triton, which PyTorch has for GPUs")

WORST = 0.004
"""Largest error of fp16 here: three roundings of numbers up to 4."""


def interpreted() -> None:
    """Compare, in a process in which Triton interprets."""
    import torch

    from training.model.board_attention import board_attention
    from training.model.layers import AttentionModule

    generator = torch.Generator().manual_seed(5)
    for n, heads, depth, biased in ((3, 2, 32, True), (2, 3, 16, False), (1, 1, 64, True)):
        qkv = torch.randn(n, 64, 3 * heads * depth, generator=generator).half()
        bias = torch.randn((n, heads, 64, 64) if biased else (0,), generator=generator).half()
        grad = torch.randn(n, 64, heads * depth, generator=generator).half()
        ours = [values.clone().requires_grad_() for values in (qkv, bias)]
        mixed = board_attention(ours[0], ours[1], heads)
        mixed.backward(grad)
        formula = [values.double().requires_grad_() for values in (qkv, bias)]
        expected = AttentionModule._mixed(formula[0], formula[1], heads)
        expected.backward(grad.double())
        pairs = [(mixed, expected), *((a.grad, b.grad) for a, b in zip(ours, formula, strict=True))]
        for found, right in pairs if biased else pairs[:2]:
            assert found.shape == right.shape
            error = (found.double() - right).abs().max()
            assert error < WORST, (n, heads, depth, float(error))


def test_the_kernel_and_its_gradients_are_the_formulas() -> None:
    code = "from tests.training.model.test_board_attention import interpreted; interpreted()"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    python(code, env=environment, timeout=None)

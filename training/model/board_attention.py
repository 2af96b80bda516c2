# SPDX-License-Identifier: GPL-3.0-or-later
"""Attention over the 64 squares of a board, as one Triton kernel for each direction.

Logits and shares stay on the chip. The kernel reads q, k, v as one product wrote them, and smolgen's logits.
It writes the mixture in the layout of the next product. The gradient recomputes the shares. For bf16 and fp16
on GPUs; Triton also compiles for AMD.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv,
    bias,
    mixed,
    heads,
    scale,
    biased: tl.constexpr,
    depth: tl.constexpr,
) -> None:
    """Compute one head of one position.
    qkv: [n, 64, 3, heads, depth]; bias: [n, heads, 64, 64]; mixed: [n, 64, heads, depth]."""
    program = tl.program_id(0).to(tl.int64)
    position, head = program // heads, program % heads
    width = heads * depth
    squares, channels = tl.arange(0, 64), tl.arange(0, depth)
    rows = position * 64 + squares
    read = qkv + rows[:, None] * (3 * width) + head * depth + channels[None, :]
    q, k, v = tl.load(read), tl.load(read + width), tl.load(read + 2 * width)
    logits = tl.dot(q, tl.trans(k)) * scale
    if biased:
        logits += tl.load(bias + program * 4096 + squares[:, None] * 64 + squares[None, :]).to(tl.float32)
    shares = tl.exp(logits - tl.max(logits, 1)[:, None])
    shares = shares / tl.sum(shares, 1)[:, None]
    result = tl.dot(shares.to(v.dtype), v)
    tl.store(mixed + rows[:, None] * width + head * depth + channels[None, :], result.to(v.dtype))


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    qkv,
    bias,
    mixed_grad,
    qkv_grad,
    bias_grad,
    heads,
    scale,
    biased: tl.constexpr,
    depth: tl.constexpr,
) -> None:
    """Compute the gradients of one head of one position, in the layouts of their tensors."""
    program = tl.program_id(0).to(tl.int64)
    position, head = program // heads, program % heads
    width = heads * depth
    squares, channels = tl.arange(0, 64), tl.arange(0, depth)
    rows = position * 64 + squares
    places = rows[:, None] * (3 * width) + head * depth + channels[None, :]
    grid = program * 4096 + squares[:, None] * 64 + squares[None, :]
    q, k, v = tl.load(qkv + places), tl.load(qkv + places + width), tl.load(qkv + places + 2 * width)
    grad = tl.load(mixed_grad + rows[:, None] * width + head * depth + channels[None, :])
    logits = tl.dot(q, tl.trans(k)) * scale
    if biased:
        logits += tl.load(bias + grid).to(tl.float32)
    shares = tl.exp(logits - tl.max(logits, 1)[:, None])
    shares = shares / tl.sum(shares, 1)[:, None]
    v_grad = tl.dot(tl.trans(shares.to(grad.dtype)), grad)
    tl.store(qkv_grad + places + 2 * width, v_grad.to(grad.dtype))
    shares_grad = tl.dot(grad, tl.trans(v))
    logits_grad = shares * (shares_grad - tl.sum(shares * shares_grad, 1)[:, None])
    if biased:
        tl.store(bias_grad + grid, logits_grad.to(grad.dtype))
    scaled = (logits_grad * scale).to(grad.dtype)
    tl.store(qkv_grad + places, tl.dot(scaled, k).to(grad.dtype))
    tl.store(qkv_grad + places + width, tl.dot(tl.trans(scaled), q).to(grad.dtype))


@triton_op("wavefront::board_attention", mutates_args=())
def board_attention(qkv: Tensor, bias: Tensor, heads: int) -> Tensor:
    """Return softmax(q k^T / sqrt(depth) + bias) v of every head: [n, 64, heads * depth].

    qkv: [n, 64, 3 * heads * depth], queries of all heads, then keys, then values, depth 16, 32, 64 or 128, in
    bf16 or fp16. bias: [n, heads, 64 query squares, 64 key squares] in the same type, or empty.
    """
    n, depth = qkv.shape[0], qkv.shape[2] // (3 * heads)
    mixed = qkv.new_empty(n, 64, heads * depth)
    wrap_triton(_forward)[(n * heads,)](
        qkv, bias, mixed, heads, depth**-0.5, biased=bias.numel() > 0, depth=depth
    )
    return mixed


@triton_op("wavefront::board_attention_backward", mutates_args=())
def _gradients(grad: Tensor, qkv: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    n, depth = qkv.shape[0], qkv.shape[2] // (3 * heads)
    qkv_grad, bias_grad = torch.empty_like(qkv), torch.empty_like(bias)
    wrap_triton(_backward)[(n * heads,)](
        qkv,
        bias,
        grad,
        qkv_grad,
        bias_grad,
        heads,
        depth**-0.5,
        biased=bias.numel() > 0,
        depth=depth,
    )
    return qkv_grad, bias_grad


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:
    qkv, bias, heads = inputs
    ctx.save_for_backward(qkv, bias)
    ctx.heads = heads


def _through(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    qkv, bias = ctx.saved_tensors
    qkv_grad, bias_grad = _gradients(grad.contiguous(), qkv, bias, ctx.heads)
    return qkv_grad, bias_grad, None


board_attention.register_autograd(_through, setup_context=_keep)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpacks positions (`training.data.packed`) to input planes on the device, and mirrors samples.

The planes equal those of the core's encoder bit by bit."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from protocol import policy_moves
from training.data.packed import HISTORY


def expand(boards: Tensor, masks: Tensor, repetitions: Tensor, rule50: Tensor, dtype: torch.dtype) -> Tensor:
    """Return tokens [n, 64, 112].
    boards: int64 [n, 8, 4], masks: int64 [n, 6], repetitions: uint8 [n], rule50: float32 [n]."""
    n = len(boards)
    squares = torch.arange(64, device=boards.device)
    bits = (boards.unsqueeze(3) >> squares) & 1  # [n, 8, 4, 64]
    number = bits[:, :, 0] + 2 * bits[:, :, 1] + 4 * bits[:, :, 2] + 8 * bits[:, :, 3]
    pieces = number.transpose(1, 2).unsqueeze(3) == torch.arange(1, 13, device=boards.device)
    steps = torch.arange(HISTORY, device=boards.device)
    repeated = ((repetitions.unsqueeze(1).int() >> steps) & 1).bool()[:, None, :, None]
    history = torch.cat([pieces, repeated.expand(n, 64, HISTORY, 1)], dim=3).reshape(n, 64, HISTORY * 13)
    rest = ((masks.unsqueeze(1) >> squares[:, None]) & 1).to(dtype)  # [n, 64, 6]
    clock = rule50.to(dtype)[:, None, None].expand(n, 64, 1)
    ones = torch.ones(n, 64, 1, dtype=dtype, device=boards.device)
    return torch.cat([history.to(dtype), rest[:, :, :5], clock, rest[:, :, 5:], ones], dim=2)


def mirrored(tokens: Tensor, chosen: Tensor) -> Tensor:
    """Return tokens [n, 64, 112] with files reversed where chosen (bool [n])."""
    n, _, planes = tokens.shape
    flipped = tokens.reshape(n, 8, 8, planes).flip(2).reshape(n, 64, planes)
    return torch.where(chosen[:, None, None], flipped, tokens)


@cache
def mirrored_policy() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the policy entry of each entry's move on the mirrored board, int64 [1858]."""
    names = policy_moves()
    index = {name: place for place, name in enumerate(names)}
    files = str.maketrans("abcdefgh", "hgfedcba")
    # The fifth letter of a promotion is a piece; b for bishop is not a file.
    return np.array([index[name[:4].translate(files) + name[4:]] for name in names], np.int64)


def cut_history(boards: Tensor, repetitions: Tensor, plies: Tensor) -> tuple[Tensor, Tensor]:
    """Return boards and repetitions with the position `plies` back (int64 [n], 0 to 7) as all earlier ones.
    This is the network's input for a game that started there from a FEN."""
    steps = torch.arange(HISTORY, device=boards.device)
    source = torch.minimum(steps[None, :], plies[:, None])
    cut = boards.gather(1, source[:, :, None].expand(-1, -1, boards.shape[2]))
    known = (torch.ones_like(plies) << (plies + 1)) - 1
    return cut, (repetitions.long() & known).to(repetitions.dtype)

# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong in training, in words for who started it."""

from __future__ import annotations

from protocol.host.extras import install


class TrainingError(RuntimeError):
    """Training cannot begin or go on. The message says why, and what to do about it."""


def require_torch() -> None:
    """Raise TrainingError where PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise TrainingError(
            f"this needs PyTorch ({error}): {install('train')}, or the build for your GPU as "
            "https://pytorch.org/get-started/locally says (ROCm's for AMD)"
        ) from None

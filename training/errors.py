# SPDX-License-Identifier: GPL-3.0-or-later
"""The error of training for the user."""

from __future__ import annotations

from protocol.common.extras import install
from protocol.common.printing import ReportedError


class TrainingError(ReportedError, RuntimeError):
    """Training cannot start or continue. The message gives the reason and the remedy."""


def require_torch() -> None:
    """Raise TrainingError if PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise TrainingError(
            f"this needs PyTorch ({error}): {install('train')}, or the build for your GPU as "
            "https://pytorch.org/get-started/locally says (ROCm's for AMD)"
        ) from None

# SPDX-License-Identifier: GPL-3.0-or-later
"""Learning-rate schedule: warm-up, constant rate, linear decay to zero (Hu et al. 2024, MiniCPM).

A run can thus be continued from its phase of constant rate."""

from __future__ import annotations

from training.config import ScheduleSettings


def rate_factor(settings: ScheduleSettings, step: int, progress: float) -> float:
    """Return the factor of learning rates. step: from 0. progress: finished share of the run."""
    rising = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    return rising * falling(settings, progress)


def falling(settings: ScheduleSettings, progress: float) -> float:
    """Return the factor of the decay: 1 until it starts."""
    if not settings.decay or progress <= 1 - settings.decay:
        return 1.0
    return max(0.0, (1 - progress) / settings.decay)


def refreshes_due(settings: ScheduleSettings, refreshes: int, progress: float) -> int:
    """Return how many refreshes are due; they are spread evenly over the time of constant rate."""
    if not refreshes:
        return 0
    constant = 1 - settings.decay
    return min(refreshes, int(progress / constant * (refreshes + 1) + 1e-9)) if constant > 0 else 0

# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast is learnt at which point of a run: a rise, a constant rate, and a fall in a straight line to zero
(warm-up, stable, decay: Hu et al. 2024, MiniCPM), so that a run can go on from where its rate was
constant."""

from __future__ import annotations

from training.config import ScheduleSettings


def rate_factor(settings: ScheduleSettings, step: int, progress: float) -> float:
    """What learning rates are multiplied by. step: from 0. progress: share of the run that is over."""
    rising = min(1.0, (step + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
    return rising * falling(settings, progress)


def falling(settings: ScheduleSettings, progress: float) -> float:
    """The factor of the fall alone: 1 until it begins."""
    if not settings.decay or progress <= 1 - settings.decay:
        return 1.0
    return max(0.0, (1 - progress) / settings.decay)


def refreshes_due(settings: ScheduleSettings, refreshes: int, progress: float) -> int:
    """How many of the refreshes, spread evenly over the time of the constant rate, should be done by now."""
    if not refreshes:
        return 0
    constant = 1 - settings.decay
    return min(refreshes, int(progress / constant * (refreshes + 1) + 1e-9)) if constant > 0 else 0

# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch sizes that a network is captured at."""

from __future__ import annotations

from evaluator.gpu.driver.device import DeviceInfo
from evaluator.gpu.plan.hopper import filling

BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Batch sizes that are captured; a batch is padded to the next."""

INTEGRATED_MAX_BATCH = 256
"""Of a small GPU that shares the CPU's memory: it is full long before 1024 positions, which cost seconds
at start and a buffer of that size."""


def usual_buckets(info: DeviceInfo, max_batch: int | None = None) -> tuple[int, ...]:
    """The batch sizes that are captured where nobody says otherwise: BUCKETS, or a little more where that
    makes better use of the device."""
    sizes = [filling(size, info.target, info.multiprocessors) for size in BUCKETS]
    most = max_batch or (INTEGRATED_MAX_BATCH if info.is_small_apu else sizes[-1])
    return (*(size for size in sizes if size < most), most)

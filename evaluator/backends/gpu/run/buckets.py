# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch sizes for which graphs are captured."""

from __future__ import annotations

from evaluator.backends.gpu.driver.device import DeviceInfo
from evaluator.backends.gpu.plan.hopper import filling

BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Captured batch sizes; batches are padded to the next one."""

INTEGRATED_MAX_BATCH = 256
"""Maximum batch of a small GPU that shares the CPU's memory. It is saturated long before 1024 positions,
which would cost seconds at start and a large buffer."""


def usual_buckets(info: DeviceInfo, max_batch: int | None = None) -> tuple[int, ...]:
    """Return the default batch sizes: BUCKETS, or slightly larger ones if that uses the device better."""
    sizes = [filling(size, info.target, info.multiprocessors) for size in BUCKETS]
    most = max_batch or (INTEGRATED_MAX_BATCH if info.is_small_apu else sizes[-1])
    return (*(size for size in sizes if size < most), most)

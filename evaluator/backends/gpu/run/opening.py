# SPDX-License-Identifier: GPL-3.0-or-later
"""Opens a plan on a device, with smaller batches if memory is short, and with a new plan if a library is
given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.gpu.blas.library import Library, LibraryGivenUp
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import DeviceError, Gpu, OutOfDeviceMemory
from evaluator.backends.gpu.plan.needs import MeasuringChooser, needs_of
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.program import PlanError
from evaluator.backends.gpu.run.executor import Executor

log = logging.getLogger(__name__)


class DeviceOpeningError(Exception):
    """A network cannot run on a device. The message has the device and the reason or remedy."""


def open_executor(
    device: Gpu,
    compiler: Compiler,
    plan: Plan,
    buckets: tuple[int, ...],
    *,
    libraries: Sequence[Library] = (),
    tuner: MeasuringChooser | None = None,
    planned: Callable[[], None] = lambda: None,
    lease: DeviceLease = exclusive_lease,
) -> Executor:
    """Return an executor for the plan, with as many of the batch sizes as fit into memory.

    tuner: the plan's chooser, if it measures. planned, lease: as in Executor. Raises DeviceOpeningError, and
    other exceptions of the plan's chooser.
    """
    info = device.info
    while True:
        try:
            if tuner is not None:
                tuner.expect(partial(needs_of, plan, buckets, info.multiprocessors))
            executor = Executor(
                device, compiler, plan, buckets, libraries=libraries, planned=planned, lease=lease
            )
            break
        except OutOfDeviceMemory as error:
            if len(buckets) == 1:
                free = device.free_memory() >> 20
                raise DeviceOpeningError(
                    f"{info.name} has not enough free memory ({free} MB) for this network even at a "
                    f"batch of {buckets[0]}; close other programs or use a smaller network"
                ) from error
            buckets = buckets[:-1]
            log.warning("not enough memory on %s: trying batches up to %d", info.name, buckets[-1])
        except LibraryGivenUp:
            plan.forget()
        except (DeviceError, PlanError) as error:
            raise DeviceOpeningError(f"{info.name}: {error}") from error
    if tuner is not None:
        tuner.save()
    if plan.packed is not None and not any(name.endswith(".codes") for name in plan.weights):
        log.warning(
            "weights=%s brings nothing on %s: every product is faster from fp16 weights. Leave the "
            "option away, it only costs accuracy here",
            plan.packed.value,
            info.name,
        )
    plan.weights.clear()  # the device has them now
    return executor

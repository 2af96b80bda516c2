# SPDX-License-Identifier: GPL-3.0-or-later
"""One launch of a plan on a real device, with arrays of the host as its operands."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan.program import Launch, Program
from evaluator.backends.gpu.run.launching import queue


def result_of(
    device: Any, program: Program, arrays: dict[str, NDArray[Any]], out: str, shape: tuple[int, int]
) -> NDArray[np.uint16]:
    """What the program's only launch leaves in `out`, run twice: the second run finds what the first has left
    behind. arrays: every buffer that the program does not know itself. Fails if an element is not finite, as
    what nobody writes is not."""
    (launch,) = program.steps
    assert isinstance(launch, Launch)
    exponent = 0x7C00 if launch.kernel.precision is Precision.FP16 else 0x7F80
    result = np.full(shape, 0x7FFF, np.uint16)  # NaN in both formats
    work = {name: np.zeros(size, np.uint8) for name, size in program.work.items()}
    addresses = {}
    try:
        for name, array in {**program.weights, **work, **arrays, out: result}.items():
            addresses[name] = device.allocate(array.nbytes)
            device.write(addresses[name], array)
        wanted = (launch.kernel, launch.shared_bytes)
        kernel = Compiler(device).load([wanted])[wanted]
        stream, event = device.create_stream(), device.create_event()
        for _ in range(2):
            queue(device, kernel, launch, lambda buffer: addresses[buffer.name], stream, overlap=False)
        device.record(event, stream)
        device.synchronize(event)
        device.read(addresses[out], result)
    finally:
        for address in addresses.values():
            device.free(address)
    assert ((result & exponent) != exponent).all(), "not every element was written"
    return result


def widened(stored: NDArray[Any], precision: Precision) -> NDArray[np.float64]:
    """Elements of half precision."""
    if precision is Precision.BF16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return stored.view(np.float16).astype(np.float64)

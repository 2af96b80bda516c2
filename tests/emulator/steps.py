"""Single steps of a program on a device, with the memory that they work on."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.driver.compiler import Compiler
from evaluator.gpu.driver.device import Device
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.program import Buffer, Launch, Matrix, Program
from evaluator.network.spec import FloatArray


def elements(values: FloatArray, stride: int, precision: Precision) -> NDArray[Any]:
    """[rows, width] floats as rows of elements, `stride` apart."""
    rows = np.zeros((len(values), stride), np.float32)
    rows[:, : values.shape[1]] = values
    return pack.stored(rows, precision)


def floats(bits: NDArray[Any], precision: Precision) -> FloatArray:
    """What stored elements stand for."""
    if precision is Precision.BF16:
        return (bits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(np.float16 if precision is Precision.FP16 else np.float32).astype(np.float32)


def rounded(values: FloatArray, precision: Precision) -> FloatArray:
    """The nearest floats that can be stored."""
    return floats(pack.stored(values, precision), precision)


def matrix_of(memory: Mapping[str, NDArray[np.uint8]], matrix: Matrix, precision: Precision) -> FloatArray:
    """[rows, width] of what `run` returned."""
    used = memory[matrix.buffer.name][: matrix.rows * matrix.stride * precision.bytes]
    return floats(used, precision).reshape(matrix.rows, matrix.stride)[:, : matrix.width]


def run(device: Device, program: Program, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.uint8]]:
    """Launch every step. inputs: what buffers of any kind hold before; those that are not the program's own
    are allocated with that size. Returns what all of them hold afterwards, as bytes."""
    sizes = {name: array.nbytes for name, array in (*program.weights.items(), *inputs.items())}
    sizes |= program.work
    addresses = {name: device.allocate(size) for name, size in sizes.items()}
    for name, array in (*program.weights.items(), *inputs.items()):
        device.write(addresses[name], np.ascontiguousarray(array))
    kernels = Compiler(device, use_cache=False).load(list(program.kernels()))
    stream, done = device.create_stream(), device.create_event()

    def value(argument: Any) -> Any:
        if isinstance(argument, float):
            return ctypes.c_float(argument)
        if isinstance(argument, int):
            return ctypes.c_int32(argument)
        return ctypes.c_uint64(addresses[argument.name] if isinstance(argument, Buffer) else 0)

    for step in program.steps:
        assert isinstance(step, Launch)
        kernel = kernels[step.kernel, step.shared_bytes]
        arguments = [value(argument) for argument in step.arguments]
        device.launch(kernel, step.grid, step.threads, step.shared_bytes, arguments, stream)
    device.record(done, stream)
    device.synchronize(done)
    memory = {name: np.empty(size, np.uint8) for name, size in sizes.items()}
    for name, array in memory.items():
        device.read(addresses[name], array)
        device.free(addresses[name])
    return memory

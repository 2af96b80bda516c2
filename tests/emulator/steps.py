# SPDX-License-Identifier: GPL-3.0-or-later
"""Single steps of a program: built, run on a device with the memory that they work on, and compared."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import Precision, Target
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.program import Buffer, Launch, Matrix, Program
from evaluator.backends.gpu.plan.tiles import Choice, candidates
from evaluator.network import e4m3
from evaluator.network.spec import FloatArray

EPSILON = {Precision.FP32: 2.0**-19, Precision.FP16: 2.0**-11, Precision.BF16: 2.0**-8}
"""Of rounding to storage; for float32, of a few operations."""


def smallest_tile(target: Target, precision: Precision) -> Callable[[Product], Choice]:
    return lambda product: candidates(product, target, precision)[0]


def builder(
    device: Gpu, precision: Precision, positions: int = 2, choice: Choice | None = None
) -> ProgramBuilder:
    target = device.info.target
    choose = smallest_tile(target, precision) if choice is None else lambda _: choice
    return ProgramBuilder(positions, target, precision, choose)


def normal(*shape: int, seed: int = 1) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_close(result: FloatArray, expected: FloatArray, precision: Precision, sums: int = 1) -> None:
    """sums: how many products of the size of 1 an element adds up."""
    assert np.isfinite(result).all()
    allowed = EPSILON[precision] * (np.abs(expected) + 2 * np.sqrt(sums))
    worst = np.abs(result - expected) / allowed
    assert worst.max() <= 1, f"off by {np.abs(result - expected).max():.3g} at {np.argmax(worst)}"


def assert_rounded(
    memory: dict[str, NDArray[np.uint8]], matrix: Matrix, device: Gpu, expected: FloatArray
) -> None:
    """Rounded to the nearest number, or to its neighbour where fp16 has rounded before. expected: not
    rounded."""
    codes = memory[matrix.buffer.name].reshape(matrix.rows, -1)
    assert matrix.inputs is not None
    scaled = np.clip(expected * matrix.inputs.scale, -448, 448)
    assert not (codes == 0x80).any() or device.info.target.e4m3 == 1
    found, right = e4m3.decoded(codes), e4m3.nearest(scaled)
    step = np.maximum(np.abs(scaled) * 2.0**-3, 2.0**-9)
    off = np.abs(found - scaled)
    at = np.unravel_index(np.argmax(off / step), off.shape)
    assert off[at] <= 0.53 * step[at], f"{scaled[at]} became {found[at]} at {at}"
    assert (found == right).mean() > 0.95


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


def run(device: Gpu, program: Program, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.uint8]]:
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

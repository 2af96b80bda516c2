# SPDX-License-Identifier: GPL-3.0-or-later
"""Queues steps of a Program in a stream: replaces buffers by addresses, and converts arguments for the
driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from evaluator.backends.gpu.blas.library import Library, Operands
from evaluator.backends.gpu.driver.device import DeviceError, Gpu
from evaluator.backends.gpu.plan.program import Argument, Buffer, Launch, LibraryStep, TensorMap, WordTable


def queue(
    device: Gpu,
    kernel: Any,
    launch: Launch,
    address: Callable[[Buffer], int],
    stream: Any,
    *,
    overlap: bool,
    tables: Mapping[str, int] | None = None,
) -> None:
    """Queue one kernel. address: returns a buffer's address. tables: addresses of tables. overlap: as in
    Device.launch."""
    arguments = [_value(device, argument, address, tables or {}) for argument in launch.arguments]
    _queue(device, kernel, launch, _grid(device, kernel, launch), arguments, stream, overlap=overlap)


def _grid(device: Gpu, kernel: Any, launch: Launch) -> tuple[int, int, int]:
    if not launch.cluster:
        return launch.grid
    resident = device.resident_blocks(kernel, launch.threads, launch.shared_bytes, launch.cluster)
    if resident < launch.together:
        raise DeviceError(f"{launch.label}: {launch.together} blocks do not run at once")
    return min(launch.grid[0], resident // launch.together * launch.together), 1, 1


def _queue(
    device: Gpu,
    kernel: Any,
    launch: Launch,
    grid: tuple[int, int, int],
    arguments: Sequence[Any],
    stream: Any,
    *,
    overlap: bool,
) -> None:
    device.launch(
        kernel,
        grid,
        launch.threads,
        launch.shared_bytes,
        arguments,
        stream,
        overlap=overlap,
        cooperative=launch.cooperative,
    )


class RepeatedLaunch:
    """A kernel that is queued many times with different copies of some buffers. The constant parts are
    prepared once, which otherwise takes longer than a short kernel."""

    def __init__(
        self,
        device: Gpu,
        kernel: Any,
        launch: Launch,
        address: Callable[[Buffer, int], int],
        copied: Container[str],
    ) -> None:
        """address: returns the address of a copy of a buffer. copied: names of buffers with several copies.
        Raises DeviceError."""
        self._device, self._kernel, self._launch, self._address = device, kernel, launch, address
        self._grid = _grid(device, kernel, launch)
        self._arguments = [
            _value(device, each, lambda buffer: address(buffer, 0), {}) for each in launch.arguments
        ]
        self._changing = [
            (index, each)
            for index, each in enumerate(launch.arguments)
            if (isinstance(each, Buffer) and each.name in copied)
            or (isinstance(each, TensorMap) and each.buffer.name in copied)
        ]

    def queue(self, copy: int, stream: Any, *, overlap: bool) -> None:
        """Queue it with one copy of the copied buffers. overlap: as in Device.launch."""
        for index, argument in self._changing:
            self._arguments[index] = _value(
                self._device, argument, lambda buffer: self._address(buffer, copy), {}
            )
        _queue(self._device, self._kernel, self._launch, self._grid, self._arguments, stream, overlap=overlap)


def multiply(
    library: Library, step: LibraryStep, address: Callable[[Buffer], int], workspace: int, stream: Any
) -> None:
    """Queue a library product. address: returns a buffer's address. workspace: as in Library.multiply."""
    operands = Operands(
        a=address(step.a),
        b=address(step.weights),
        bias=0 if step.bias is None else address(step.bias),
        residual=0 if step.residual is None else address(step.residual),
        out=address(step.out),
    )
    library.multiply(step.product, step.algorithm, operands, workspace=workspace, stream=int(stream))


def _value(
    device: Gpu, argument: Argument, address: Callable[[Buffer], int], tables: Mapping[str, int]
) -> Any:
    match argument:
        case None:
            return ctypes.c_uint64(0)
        case Buffer():
            return ctypes.c_uint64(address(argument))
        case WordTable(name):
            return ctypes.c_uint64(tables[name])
        case TensorMap():
            return device.tensor_map(address(argument.buffer), argument.box)
        case float():
            return ctypes.c_float(argument)
        case int():
            return ctypes.c_int32(argument)
    raise TypeError(f"not a kernel argument: {argument!r}")

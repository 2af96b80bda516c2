"""From a step of a Program to work in a stream: its buffers become addresses, its arguments what the driver
takes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from evaluator.gpu.blas.library import Library, Operands
from evaluator.gpu.driver.device import Device, DeviceError
from evaluator.gpu.plan.program import Argument, Buffer, Launch, LibraryStep, Table, TensorMap


def queue(
    device: Device,
    kernel: Any,
    launch: Launch,
    address: Callable[[Buffer], int],
    stream: Any,
    *,
    overlap: bool,
    tables: Mapping[str, int] | None = None,
) -> None:
    """Queue one kernel. address: where a buffer lies; tables: where tables lie. overlap: as of
    Device.launch."""
    grid = launch.grid
    if launch.cluster:
        resident = device.resident_blocks(kernel, launch.threads, launch.shared_bytes, launch.cluster)
        if resident < launch.together:
            raise DeviceError(f"{launch.label}: {launch.together} blocks do not run at once")
        grid = (min(grid[0], resident // launch.together * launch.together), 1, 1)
    arguments = [_value(device, argument, address, tables or {}) for argument in launch.arguments]
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


def multiply(
    library: Library, step: LibraryStep, address: Callable[[Buffer], int], workspace: int, stream: Any
) -> None:
    """Queue one product of a library. address: where a buffer lies; workspace: as of Library.multiply."""
    operands = Operands(
        a=address(step.a),
        b=address(step.weights),
        bias=0 if step.bias is None else address(step.bias),
        residual=0 if step.residual is None else address(step.residual),
        out=address(step.out),
    )
    library.multiply(step.product, step.algorithm, operands, workspace=workspace, stream=int(stream))


def _value(
    device: Device, argument: Argument, address: Callable[[Buffer], int], tables: Mapping[str, int]
) -> Any:
    match argument:
        case None:
            return ctypes.c_uint64(0)
        case Buffer():
            return ctypes.c_uint64(address(argument))
        case Table(name):
            return ctypes.c_uint64(tables[name])
        case TensorMap():
            return device.tensor_map(address(argument.buffer), argument.box)
        case float():
            return ctypes.c_float(argument)
        case int():
            return ctypes.c_int32(argument)
    raise TypeError(f"not a kernel argument: {argument!r}")

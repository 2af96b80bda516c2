"""Which GPUs this machine has, and why one that should be there is not."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from evaluator.gpu.driver.device import Device, DeviceError, DeviceInfo
from protocol.host.extras import install

_VENDORS = {
    "amd": (
        "evaluator.gpu.driver.amd",
        "hip-python is not installed: pip install hip-python, and install ROCm",
    ),
    "nvidia": (
        "evaluator.gpu.driver.nvidia",
        f"cuda-bindings or NVRTC is not installed: {install('nvidia')}",
    ),
}

DEVICE_NODES: dict[str, tuple[str, ...]] = {
    "amd": ("/dev/kfd", "/dev/dxg"),
    "nvidia": ("/dev/nvidiactl", "/dev/dxg"),
}
"""By vendor, on Linux: files of which its driver makes at least one; dxg is that of Windows, under WSL."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """devices: usable, AMD first. problems: by vendor, why there are none of it, or why some are not among
    the devices."""

    devices: tuple[DeviceInfo, ...]
    problems: dict[str, str]


def discover() -> Discovery:
    """Look for the GPUs of every vendor. Never raises."""
    devices: list[DeviceInfo] = []
    problems: dict[str, str] = {}
    for vendor in _VENDORS:
        try:
            _require_driver(vendor)
            module = _module(vendor)
            count = module.device_count()
            if count == 0:
                problems[vendor] = "the driver sees no device"
            described = [module.describe(index) for index in range(count)]
            devices += [each for each in described if not each.target.problem]
            unusable = [f"{each.name}: {each.target.problem}" for each in described if each.target.problem]
            if unusable:
                problems[vendor] = "; ".join(unusable)
        except DeviceError as error:
            problems[vendor] = str(error)
        except Exception as error:  # whatever is wrong with a vendor's package, the rest must go on
            problems[vendor] = f"{type(error).__name__}: {error}"
    return Discovery(tuple(devices), problems)


@cache
def found_devices() -> Discovery:
    """What `discover` says, looked for once."""
    return discover()


def select(devices: tuple[DeviceInfo, ...], wanted: str) -> DeviceInfo:
    """The device that `wanted` names: "" the first, "1" the second of all, "amd:0" AMD's number 0. Raises
    DeviceError."""
    vendor, _, number = wanted.rpartition(":")
    numbered = {
        str(device.index if vendor else position): device
        for position, device in enumerate(devices)
        if not vendor or device.vendor == vendor
    }
    index = number or "0"
    if index in numbered:
        return numbered[index]
    known = ", ".join(f"{device.vendor}:{device.index} ({device.name})" for device in devices) or "none"
    raise DeviceError(f"there is no device {wanted!r}; there are: {known}")


def select_all(devices: tuple[DeviceInfo, ...], wanted: str) -> list[DeviceInfo]:
    """The devices that `wanted` names: several as in "0+2" or "amd:0+nvidia:0", "all", "nvidia:all", or one
    as `select` has it. Raises DeviceError."""
    found: list[DeviceInfo] = []
    for part in wanted.split("+"):
        vendor, _, number = part.rpartition(":")
        if number == "all":
            among = [device for device in devices if not vendor or device.vendor == vendor]
            found += among or [select(devices, part)]
        else:
            found.append(select(devices, part))
    if len(set(found)) < len(found):
        raise DeviceError(f"{wanted!r} names a device twice")
    return found


def open_device(info: DeviceInfo) -> Device:
    """Take a device. Raises DeviceError."""
    module = _module(info.vendor)
    device: Device = (module.AmdDevice if info.vendor == "amd" else module.NvidiaDevice)(info.index)
    return device


def _require_driver(vendor: str) -> None:
    """Raise DeviceError where a look at the file system says it already, before anything is imported."""
    nodes = DEVICE_NODES[vendor]
    if sys.platform != "linux":
        return
    present = [node for node in nodes if Path(node).exists()]
    if not present:
        raise DeviceError(f"no driver: there is neither {' nor '.join(nodes)}")
    if not any(os.access(node, os.R_OK | os.W_OK) for node in present):
        raise DeviceError(
            f"no permission for {present[0]}: add your user to the group that owns it (AMD's: render) "
            "and log in again"
        )


def _module(vendor: str) -> ModuleType:
    name, hint = _VENDORS[vendor]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DeviceError(f"{hint} ({error})") from error

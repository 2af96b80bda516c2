# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the usable GPUs of this machine, and the reasons why others cannot be used."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

from evaluator.backends.common import crashes
from evaluator.backends.common.crashes import Phase
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo, Gpu
from protocol.common.extras import install
from protocol.common.version import __version__

_VENDORS = {
    "amd": (
        "evaluator.backends.gpu.driver.amd",
        "hip-python is not installed: pip install hip-python, and install ROCm",
    ),
    "nvidia": (
        "evaluator.backends.gpu.driver.nvidia",
        f"cuda-bindings or NVRTC is not installed: {install('nvidia')}",
    ),
}

DEVICE_NODES: dict[str, tuple[str, ...]] = {
    "amd": ("/dev/kfd", "/dev/dxg"),
    "nvidia": ("/dev/nvidiactl", "/dev/dxg"),
}
"""Device files on Linux, by vendor; a driver makes at least one. dxg is Windows' driver, under WSL."""


_RESTRICTIONS = {
    "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
}
"""Environment variables by which a driver selects and numbers its devices."""

_BINDINGS = {"amd": "hip-python", "nvidia": "cuda-bindings"}
_DRIVER_VERSIONS = {"amd": "/sys/module/amdgpu/version", "nvidia": "/proc/driver/nvidia/version"}


@dataclass(frozen=True, slots=True)
class Discovery:
    """devices: those with kernels, AMD first. problems: by vendor, why it has no devices or why some are
    missing. excluded: devices that crashed a process before, with a text for the user. crashed_drivers: texts
    about drivers that crashed while listing devices.
    """

    devices: tuple[DeviceInfo, ...]
    problems: dict[str, str]
    excluded: Mapping[DeviceInfo, str] = field(default_factory=dict)
    crashed_drivers: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """Texts for the user at each start: the devices and drivers excluded after a crash."""
        return (*self.crashed_drivers, *self.excluded.values())

    @property
    def usable(self) -> tuple[DeviceInfo, ...]:
        """The devices that are not excluded."""
        return tuple(device for device in self.devices if device not in self.excluded)


def discover() -> Discovery:
    """Find the GPUs of all vendors. Never raises."""
    devices: list[DeviceInfo] = []
    problems: dict[str, str] = {}
    crashed: list[str] = []
    for vendor in _VENDORS:
        try:
            _require_driver(vendor)
            if crash := crashes.excluded(_driver_subject(vendor)):
                problems[vendor] = f"the driver of {vendor} is not used: {crash}; {crashes.RETRY}"
                crashed.append(problems[vendor])
                continue
            with crashes.attempt(_driver_subject(vendor), Phase.OPENING):
                module = _module(vendor)
                count = module.device_count()
                described = [module.describe(index) for index in range(count)]
            if count == 0:
                limits = " and ".join(f"{name}={value}" for name, value in restrictions(vendor).items())
                problems[vendor] = "the driver sees no device" + f"; {limits} limits it" * bool(limits)
            devices += [each for each in described if not each.target.problem]
            unusable = [f"{each.name}: {each.target.problem}" for each in described if each.target.problem]
            if unusable:
                problems[vendor] = "; ".join(unusable)
        except DeviceError as error:
            problems[vendor] = str(error)
        except Exception as error:  # any fault of a vendor's package must not affect the others
            problems[vendor] = f"{type(error).__name__}: {error}"
    excluded = {
        device: f"{device.name} ({device.vendor}:{device.index}) is not used: {crash}; {crashes.RETRY}"
        for device in devices
        if (crash := crashes.excluded(subject_of(device)))
    }
    return Discovery(tuple(devices), problems, excluded, tuple(crashed))


def restrictions(vendor: str = "") -> dict[str, str]:
    """Return the environment variables that limit the devices of a vendor's driver (default: of all)."""
    names = dict.fromkeys(
        name for each, known in _RESTRICTIONS.items() if vendor in ("", each) for name in known
    )
    return {name: os.environ[name] for name in names if name in os.environ}


def subject_of(device: DeviceInfo) -> str:
    """Return what a crash is attributed to: the device, its driver, their binding and this program."""
    return "|".join(
        (device.name, device.target.name, device.pci, device.driver, _driver_subject(device.vendor))
    )


@cache
def _driver_subject(vendor: str) -> str:
    try:
        binding = importlib.metadata.version(_BINDINGS[vendor])
    except importlib.metadata.PackageNotFoundError:
        binding = ""
    try:
        driver = Path(_DRIVER_VERSIONS[vendor]).read_text(errors="replace").partition("\n")[0]
    except OSError:
        driver = ""
    return f"{vendor}|{driver}|{binding}|{__version__}"


@cache
def found_devices() -> Discovery:
    """Return the result of `discover`, cached."""
    return discover()


def fastest(devices: Sequence[DeviceInfo]) -> DeviceInfo:
    """Return the default device; at least one must be given.

    Small integrated GPUs come last. Otherwise the estimated rate decides, whichever vendor, then the driver's
    order.
    """
    return max(devices, key=lambda device: (not (device.integrated and device.small), device.tflops))


def select(
    devices: tuple[DeviceInfo, ...], wanted: str, excluded: Mapping[DeviceInfo, str] | None = None
) -> DeviceInfo:
    """Return the device named by `wanted`: "" the fastest, "1" the second of all, "amd:0" AMD's number 0.

    excluded: devices not to use, with reasons. Raises DeviceError.
    """
    excluded = excluded or {}
    if not wanted and devices:
        usable = [device for device in devices if device not in excluded]
        if not usable:
            raise DeviceError("; ".join(excluded.values()))
        return fastest(usable)
    named = _named(devices, wanted)
    if named in excluded:
        raise DeviceError(excluded[named])
    return named


def _named(devices: tuple[DeviceInfo, ...], wanted: str) -> DeviceInfo:
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


def select_all(
    devices: tuple[DeviceInfo, ...], wanted: str, excluded: Mapping[DeviceInfo, str] | None = None
) -> list[DeviceInfo]:
    """Return the devices named by `wanted`.

    wanted: several as in "0+2" or "amd:0+nvidia:0", "all", "nvidia:all", or one as in `select`. excluded:
    devices that "all" leaves out, with reasons. Raises DeviceError.
    """
    excluded = excluded or {}
    found: list[DeviceInfo] = []
    for part in wanted.split("+"):
        vendor, _, number = part.rpartition(":")
        if number == "all":
            among = [each for each in devices if each not in excluded and vendor in ("", each.vendor)]
            found += among or [select(devices, "", excluded) if excluded else _named(devices, part)]
        else:
            found.append(select(devices, part, excluded))
    if len(set(found)) < len(found):
        raise DeviceError(f"{wanted!r} names a device twice")
    return found


def open_device(info: DeviceInfo) -> Gpu:
    """Open a device. Raises DeviceError."""
    module = _module(info.vendor)
    device: Gpu = (module.AmdDevice if info.vendor == "amd" else module.NvidiaDevice)(info.index)
    return device


def _require_driver(vendor: str) -> None:
    """Raise DeviceError if the driver's files are missing, before anything is imported."""
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

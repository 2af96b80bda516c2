# SPDX-License-Identifier: GPL-3.0-or-later
"""Power and temperature of a GPU.

AMD's Linux driver provides them in files (the kernel's documentation of amdgpu, "GPU Power/Thermal Controls
and Monitoring"); NVIDIA's are read through nvidia-ml-py, if installed.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from evaluator.backends.common.sensors import Sensors
from evaluator.backends.gpu.driver.device import DeviceInfo

PCI_DEVICES = Path("/sys/bus/pci/devices")

_CHIP = 0
"""NVML_TEMPERATURE_GPU."""


def read_sensors(info: DeviceInfo) -> Sensors:
    """Return the current readings, as far as available. Never raises."""
    if not info.pci:
        return Sensors()
    return _amd(info.pci) if info.vendor == "amd" else _nvidia(info.pci)


def _amd(pci: str) -> Sensors:
    place = PCI_DEVICES / pci
    if not place.exists():  # a partition, whose function Linux does not list: the whole card's readings
        place = PCI_DEVICES / f"{pci.partition('.')[0]}.0"
    for folder in sorted((place / "hwmon").glob("hwmon*")):
        power = _number(folder / "power1_average") or _number(folder / "power1_input")
        temperature = _number(folder / "temp1_input")
        return Sensors(
            None if power is None else power / 1e6, None if temperature is None else temperature / 1e3
        )
    return Sensors()


def _nvidia(pci: str) -> Sensors:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return Sensors()
    try:
        _open(nvml)
        handle = nvml.nvmlDeviceGetHandleByPciBusId(pci.encode())
        return Sensors(
            nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            float(nvml.nvmlDeviceGetTemperature(handle, _CHIP)),
        )
    except nvml.NVMLError:  # a virtual GPU, or a driver without sensors
        return Sensors()


@cache
def _open(nvml: Any) -> None:
    """Initialise NVML once, not for each reading. A failure is not cached. The end of the process closes
    it."""
    nvml.nvmlInit()


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None

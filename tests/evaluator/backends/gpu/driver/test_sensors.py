# SPDX-License-Identifier: GPL-3.0-or-later
"""Power and temperature from the system's files and from NVML."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.backends.common.sensors import Sensors
from evaluator.backends.gpu.driver import sensors
from evaluator.backends.gpu.driver.device import DeviceInfo
from evaluator.backends.gpu.driver.sensors import read_sensors
from evaluator.backends.gpu.driver.target import amd_target

PLACE = "0000:03:00.0"


def info(vendor: str, pci: str = PLACE) -> DeviceInfo:
    return DeviceInfo(vendor, 0, "card", amd_target("gfx1100"), 1 << 30, 48, "driver", False, pci=pci)


@pytest.fixture
def hwmon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sensors, "PCI_DEVICES", tmp_path)
    folder = tmp_path / PLACE / "hwmon" / "hwmon3"
    folder.mkdir(parents=True)
    (folder / "temp1_input").write_text("46000\n")
    return folder


@pytest.mark.parametrize("file", ["power1_average", "power1_input"])
def test_amd_tells_in_files(hwmon: Path, file: str) -> None:
    (hwmon / file).write_text("38500000\n")
    assert read_sensors(info("amd")) == Sensors(38.5, 46.0)
    assert str(read_sensors(info("amd"))) == "38 W, 46 °C"


def test_sensor_is_unknown_when_the_driver_reports_nothing(hwmon: Path) -> None:
    assert read_sensors(info("amd")) == Sensors(None, 46.0)
    (hwmon / "temp1_input").write_text("hot\n")
    assert str(read_sensors(info("amd"))) == ""
    assert read_sensors(info("amd", "0000:04:00.0")) == Sensors()
    assert read_sensors(info("amd", "")) == Sensors()


class NVMLError(Exception):
    pass


class Nvml(SimpleNamespace):
    """Each another module."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def nvml(**changes: Any) -> Nvml:
    functions = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByPciBusId": lambda place: place.decode(),
        "nvmlDeviceGetPowerUsage": lambda handle: {PLACE: 691_000}[handle],
        "nvmlDeviceGetTemperature": lambda handle, kind: {(PLACE, 0): 61}[handle, kind],
    }
    return Nvml(**functions | changes)


def test_nvidia_tells_through_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert read_sensors(info("nvidia")) == Sensors(691.0, 61.0)


def test_a_driver_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise NVMLError("not supported")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetPowerUsage=refuse))
    assert read_sensors(info("nvidia")) == Sensors()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert read_sensors(info("nvidia")) == Sensors()


def test_the_library_is_opened_once_and_again_where_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[bool] = []

    def init() -> None:
        opened.append(len(opened) > 0)
        if not opened[-1]:
            raise NVMLError("the driver is not loaded")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=init))
    told = [read_sensors(info("nvidia")) for _ in range(4)]
    assert told == [Sensors(), *3 * [Sensors(691.0, 61.0)]]
    assert opened == [False, True]

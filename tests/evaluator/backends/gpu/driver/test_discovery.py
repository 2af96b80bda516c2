# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices there are, how they are named, and that having none breaks nothing."""

import pytest

from evaluator.backends import available_backends, open_backend
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.backends.gpu.driver.discovery import discover, select, select_all
from evaluator.backends.gpu.driver.target import amd_target, nvidia_target
from evaluator.network.random_network import random_network
from tests.programs import EVALUATOR, run

DEVICES = tuple(
    DeviceInfo(vendor, index, f"{vendor} {index}", nvidia_target(9, 0), 1 << 30, 8, "1", False)
    for vendor, index in (("amd", 0), ("nvidia", 0), ("nvidia", 1))
)


@pytest.mark.parametrize(
    ("wanted", "found"), [("", 0), ("0", 0), ("2", 2), ("nvidia:0", 1), ("nvidia:1", 2), ("amd:0", 0)]
)
def test_devices_are_named_by_number_or_vendor(wanted: str, found: int) -> None:
    assert select(DEVICES, wanted) is DEVICES[found]


@pytest.mark.parametrize("wanted", ["3", "amd:1", "intel:0", "x", "-1"])
def test_an_unknown_device_is_refused_with_the_list(wanted: str) -> None:
    with pytest.raises(DeviceError, match=r"amd:0 \(amd 0\), nvidia:0"):
        select(DEVICES, wanted)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("0+2", [0, 2]),
        ("nvidia:1+amd:0", [2, 0]),
        ("all", [0, 1, 2]),
        ("nvidia:all", [1, 2]),
        ("nvidia:all+amd:0", [1, 2, 0]),
        ("1", [1]),
    ],
)
def test_several_devices_are_named_at_once(wanted: str, found: list[int]) -> None:
    assert select_all(DEVICES, wanted) == [DEVICES[index] for index in found]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("0+3", "there is no device '3'"), ("intel:all", "no device 'intel:all'"), ("0+amd:0", "twice")],
)
def test_several_devices_must_exist_and_differ(wanted: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        select_all(DEVICES, wanted)


def test_a_device_that_is_omitted_does_not_renumber_the_others() -> None:
    assert select(DEVICES[2:], "nvidia:1") is DEVICES[2]


def test_every_vendor_has_a_device_or_a_reason() -> None:
    found = discover()
    assert {device.vendor for device in found.devices} | set(found.problems) == {"amd", "nvidia"}


def test_without_a_gpu_the_cpu_is_used_and_the_reason_is_given() -> None:
    reason = available_backends()["gpu"]
    if reason is None:
        pytest.skip("this machine has a GPU")
    assert "amd:" in reason
    assert "nvidia:" in reason
    with open_backend("auto", random_network("tiny-resnet")) as backend:
        assert backend.name == "onnx"


def test_devices_command() -> None:
    shown = run(*EVALUATOR, "devices").stdout
    assert "amd" in shown and "nvidia" in shown and "CPU: " in shown


@pytest.mark.integration
def test_verify_command_fails_when_the_backend_is_unknown() -> None:
    command = (*EVALUATOR, "verify", "--network", "random:tiny-resnet")
    assert "ok" in run(*command, "--backend", "onnx", "--positions", "3").stdout
    assert "no backend 'none'" in run(*command, "--backend", "none", status=1).stderr


def gpu(
    target: str, processors: int, clock_mhz: int = 0, *, integrated: bool = False, gb: int = 16
) -> DeviceInfo:
    of = nvidia_target(*divmod(int(target[3:]), 10)) if target.startswith("sm_") else amd_target(target)
    vendor = "nvidia" if target.startswith("sm_") else "amd"
    return DeviceInfo(vendor, 0, target, of, gb << 30, processors, "1", integrated, clock_mhz=clock_mhz)


RYZEN = gpu("gfx1036", 1, 2200, integrated=True, gb=1)
RADEON_780M = gpu("gfx1103", 6, 2700, integrated=True, gb=4)
STRIX_HALO = gpu("gfx1151", 20, 2900, integrated=True, gb=96)
MI300A = gpu("gfx942", 228, 2100, integrated=True, gb=128)
RX_6600 = gpu("gfx1032", 14, 2491)
RX_7900_XTX = gpu("gfx1100", 48, 2500)
RX_9070_XT = gpu("gfx1201", 32, 2970)
T400 = gpu("sm_75", 6, 1425)
RTX_4090 = gpu("sm_89", 128, 2520)


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        (RYZEN, RX_7900_XTX),
        (RYZEN, T400),
        (RADEON_780M, RX_6600),
        (T400, STRIX_HALO),
        (RX_6600, MI300A),
        (RX_7900_XTX, RTX_4090),
        (RX_7900_XTX, RX_9070_XT),
    ],
    ids=lambda each: each.name,
)
def test_the_faster_gpu_is_taken_whatever_the_order(slower: DeviceInfo, faster: DeviceInfo) -> None:
    assert select((slower, faster), "") is faster
    assert select((faster, slower), "") is faster
    assert select((slower, faster), "0") is slower


def test_small_gpus_are_those_that_a_cpu_may_beat() -> None:
    assert [each.small for each in (RYZEN, RADEON_780M, T400)] == [True] * 3
    assert [each.small for each in (STRIX_HALO, MI300A, RX_6600, RX_9070_XT)] == [False] * 4


def test_an_excluded_gpu_is_not_taken_and_refused_if_it_is_named() -> None:
    excluded = {RTX_4090: "it crashed"}
    assert select((RX_6600, RTX_4090), "", excluded) is RX_6600
    assert select((RX_6600, RTX_4090), "amd:0", excluded) is RX_6600
    for wanted in ("1", "nvidia:0"):
        with pytest.raises(DeviceError, match="it crashed"):
            select((RX_6600, RTX_4090), wanted, excluded)
    with pytest.raises(DeviceError, match="it crashed"):
        select((RTX_4090,), "", excluded)

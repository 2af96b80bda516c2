# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines with AMD GPUs: mixed, integrated, unknown, with the wrong version, and with something missing."""

import os
from pathlib import Path
from typing import Any

import pytest

from evaluator.backends import BackendError, open_backend
from evaluator.backends.common import crashes
from evaluator.backends.common.crashes import Phase
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.driver import discovery, sensors
from evaluator.backends.gpu.driver.discovery import discover, found_devices, open_device, subject_of
from evaluator.backends.gpu.driver.sensors import read_sensors
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.run.buckets import BUCKETS, INTEGRATED_MAX_BATCH, usual_buckets
from evaluator.backends.gpu.tuning.cache import path_of
from tests.evaluator.backends.gpu.fibers import COPIED, evaluates, open_again, open_on_fibers
from tests.hip_runtime.standin import Runtime
from tests.paths import CACHE

pytestmark = pytest.mark.kernels


def test_two_kinds_of_gpus_share_one_cache(runtime: Runtime, network: Any, tmp_path: Path) -> None:
    runtime.reset("gfx1100;gfx942:sramecc+:xnack-")
    backends = [open_again(network, tmp_path, device=index) for index in range(2)]
    compiled = len(list(tmp_path.iterdir()))
    for backend in backends:
        assert evaluates(backend, 3, seed=1)
        backend.close()
    assert runtime.report().alive == {}
    for index in range(2):
        open_again(network, tmp_path, device=index).close()
    assert len(list(tmp_path.iterdir())) == compiled  # nothing was compiled again


def test_integrated_gpu_works_in_the_cpus_memory(runtime: Runtime, network: Any, kernel_cache: Path) -> None:
    devices = "gfx1151,integrated=1,memory_mb=256"
    with open_on_fibers(runtime, network, kernel_cache, devices=devices, buckets=(4, COPIED)) as backend:
        assert evaluates(backend, 3, seed=1) and evaluates(backend, COPIED, seed=1)
        report = runtime.report()
        # Neither weights nor batches are copied, and nobody waits for the whole device.
        assert not {"hipMemcpy", "hipMemcpyAsync", "hipDeviceSynchronize"} & set(report.calls)
        assert all(batch.device_input == 0 for batch in backend.executor.in_flight)
        assert backend.memory() == (report.used[0], 256 << 20)
        assert report.used[0] > 0
    assert runtime.report().alive == {}


def test_the_batches_of_an_integrated_gpu_start_small(machine: Runtime) -> None:
    machine.reset("gfx1151,integrated=1;gfx1100")
    integrated, discrete = discover().devices
    assert usual_buckets(integrated)[:4] == (1, 2, 4, 8)
    assert usual_buckets(integrated)[-1] == INTEGRATED_MAX_BATCH
    assert usual_buckets(discrete)[-1] == BUCKETS[-1]
    assert usual_buckets(integrated, 512)[-1] == 512


def test_large_integrated_gpu_is_used(runtime: Runtime, network: Any, kernel_cache: Path) -> None:
    """MI300A: weights and large batches are in memory that the driver gives to the device."""
    devices = f"gfx942,integrated=1,memory_mb={128 << 10},processors=228"
    with open_on_fibers(runtime, network, kernel_cache, devices=devices, buckets=(4, COPIED)) as backend:
        info = backend.executor.device.info
        assert info.integrated and not info.is_small_apu
        assert usual_buckets(info)[-1] == BUCKETS[-1]
        assert "hipMemcpy" in runtime.report().calls


@pytest.mark.parametrize(
    ("device", "units"),
    [("gfx1201,processors=32", 64), ("gfx1101,processors=30", 60), ("gfx942,processors=304", 304)],
)
def test_compute_units_are_counted_on_all(machine: Runtime, device: str, units: int) -> None:
    machine.reset(device)
    assert discover().devices[0].compute_units == units


def test_an_unknown_gpu_gets_the_generic_kernels_and_says_so(
    runtime: Runtime, network: Any, kernel_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_on_fibers(runtime, network, kernel_cache, devices="gfx1399") as backend:
        assert len(backend.evaluate(probe_batch(3))) == 3
    assert "gfx1399: unknown: generic kernels" in caplog.text


def test_a_backend_is_opened_by_its_devices_name(machine: Runtime, network: Any) -> None:
    machine.reset("gfx1100,name=First;gfx906,name=Second")
    options: dict[str, Any] = {"precision": "fp32", "deterministic": True, "buckets": "4"}
    with open_backend("gpu", network, device="amd:1", **options) as backend:
        assert backend.device.startswith("Second (gfx906, fp32, HIP 7.15)")
    with pytest.raises(BackendError, match=r"amd:0 \(First\), amd:1 \(Second\)"):
        open_backend("gpu", network, device="amd:2", **options)


def test_a_hip_python_that_does_not_fit_rocm_is_named(machine: Runtime) -> None:
    machine.reset(version=60400000)
    assert "hip-python here is for HIP 7." in discover().problems["amd"]
    assert "ROCm has HIP 6.4" in discover().problems["amd"]


PARTITIONS = ";".join(f"gfx942,name=MI300X,processors=38,pci=0000:03:00.{each}" for each in range(2))


def test_partitions_of_a_card_are_distinct_devices(
    machine: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "PCI_DEVICES", tmp_path)
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    machine.reset(f"{PARTITIONS};gfx942,name=MI300X,processors=304,pci=0000:04:00.0")
    first, second, whole = discover().devices
    assert (first.pci, second.pci) == ("0000:03:00.0", "0000:03:00.1")
    assert subject_of(first) != subject_of(second)
    # Measurements count for partitions of the same size, not for the whole card of the same name.
    paths = [path_of(info, Precision.FP16, ()) for info in (first, second, whole)]
    assert paths[0] == paths[1] != paths[2]
    # Linux lists the card only, whose readings are those of each partition.
    folder = tmp_path / first.pci / "hwmon" / "hwmon3"
    folder.mkdir(parents=True)
    (folder / "temp1_input").write_text("46000")
    assert [read_sensors(info).celsius for info in (first, second, whole)] == [46, 46, None]


def test_a_crash_of_a_partition_excludes_no_other(
    machine: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    machine.reset(PARTITIONS)
    second = discover().devices[1]
    crashes.add(subject_of(second), Phase.OPENING, "SIGABRT")
    found = discover()
    assert list(found.excluded) == [second]
    assert [each.index for each in found.usable] == [0]


def test_a_device_without_a_pci_address_is_used(machine: Runtime) -> None:
    machine.fail("hipDeviceGetPCIBusId", 1)
    assert discover().devices[0].pci == ""


def test_a_driver_without_devices_is_named(machine: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    machine.reset("")
    assert discover().problems["amd"] == "the driver sees no device"
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "7")
    assert discover().problems["amd"] == "the driver sees no device; HIP_VISIBLE_DEVICES=7 limits it"


@pytest.mark.parametrize(("free", "used"), [(3 << 30, 5 << 30), (96 << 30, 0)])
def test_used_memory_is_not_negative(
    machine: Runtime, monkeypatch: pytest.MonkeyPatch, free: int, used: int
) -> None:
    device = open_device(discover().devices[0])
    monkeypatch.setattr(device, "free_memory", lambda: free)
    assert device.used_memory() == used


def test_a_driver_that_may_not_be_used_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node = tmp_path / "kfd"
    node.touch()
    monkeypatch.setitem(discovery.DEVICE_NODES, "amd", (str(node),))
    monkeypatch.setattr(os, "access", lambda *_: False)  # tests may run as root, whom nobody stops
    assert f"no permission for {node}" in discover().problems["amd"]


def test_cpu_is_used_when_a_gpu_has_a_problem(machine: Runtime, network: Any) -> None:
    machine.fail("hipSetDevice", 999, times=1000)
    with open_backend("auto", network) as backend:
        assert backend.name == "onnx"
    machine.fail("hipGetDeviceProperties", 999, times=1000)
    found_devices.cache_clear()
    with open_backend("auto", network) as backend:
        assert backend.name == "onnx"
    assert "hipGetDeviceProperties" in discover().problems["amd"]

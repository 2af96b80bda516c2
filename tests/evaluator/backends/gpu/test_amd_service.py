# SPDX-License-Identifier: GPL-3.0-or-later
"""The service on AMD GPUs: the commands as processes, and what happens when a device fails in the middle."""

import argparse
import ctypes
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu import backend as gpu
from evaluator.backends.gpu.driver import sensors
from evaluator.backends.gpu.driver.discovery import discover
from evaluator.backends.gpu.run import buckets
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.commands import tune as tune_command
from evaluator.devices.opening.loading import Loader
from evaluator.network import load_network
from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from evaluator.service.networks import NetworkToLoad
from evaluator.service.service import EvaluatorService
from protocol import EvaluatorClient
from tests.evaluator.backends.gpu.fibers import SHAPE, cache_with_kernels
from tests.evaluator.service import process as processes
from tests.evaluator.service.harness import devices
from tests.hip_runtime.standin import Runtime
from tests.paths import CACHE, REPOSITORY
from tests.programs import run

pytestmark = pytest.mark.kernels

BACKEND = "gpu:precision=fp32,deterministic=true,buckets=1+4"
WAIT_S = 60.0


@pytest.fixture(scope="module")
def network_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "tiny.pb.gz"
    write_network(random_network(SHAPE, seed=3), path, license="none")
    return path


@pytest.fixture
def environment(rocm: Path, kernel_cache: Path, tmp_path: Path) -> dict[str, str]:
    """Of a process on a machine with one gfx1100; its caches are those of this test run."""
    return {
        **os.environ,
        "ROCM_PATH": str(rocm),
        "LD_LIBRARY_PATH": str(rocm / "lib"),
        "COLUMNS": "200",
        "STANDIN_DEVICES": "gfx1100,memory_mb=512",
        "STANDIN_REPORT": str(tmp_path / "report.json"),
        CACHE: str(kernel_cache.parent / "cache"),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
    }


def command(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "tests.hip_runtime.command", *arguments)
    return run(*command, status=None, env=environment, timeout=None)


# -- commands ------------------------------------------------------------------------------------------


def test_devices_lists_what_each_can_do(environment: dict[str, str]) -> None:
    environment["STANDIN_DEVICES"] = "gfx1151,name=Halo,integrated=1,memory_mb=65536;gfx1399,name=New;gfx942"
    done = command(environment, "devices")
    assert done.returncode == 0, done.stderr
    for text in ("Halo", "shared with the CPU, 0 MB in use", "WMMA (gfx11)", "unknown: generic", "HIP 7.15"):
        assert text in done.stdout, done.stdout
    environment["ROCR_VISIBLE_DEVICES"] = "0,1,2"
    assert "ROCR_VISIBLE_DEVICES=0,1,2 selects and numbers the GPUs" in command(environment, "devices").stdout
    done = command(environment, "devices", "--json")
    assert json.loads(done.stdout)["restricted_by"]["ROCR_VISIBLE_DEVICES"] == "0,1,2"
    facts = json.loads(done.stdout)["devices"]
    assert [each["memory_used_mb"] for each in facts] == [0, 0, 0]
    assert facts[0]["integrated"]
    assert not facts[1]["known_target"]


def test_devices_names_a_missing_library(environment: dict[str, str], rocm: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    environment |= {"ROCM_PATH": str(tmp_path), "LD_LIBRARY_PATH": ""}
    done = command(environment, "devices")
    assert "amd: libamdhip64.so was not found in" in done.stdout
    assert "LD_LIBRARY_PATH" in done.stdout
    done = command(environment, "verify", "--network", "random:tiny-resnet", "--backend", "auto")
    assert done.returncode == 0, done.stderr  # on the CPU
    (tmp_path / "lib" / "libamdhip64.so").symlink_to(rocm / "lib" / "libamdhip64.so")
    environment["LD_LIBRARY_PATH"] = str(tmp_path / "lib")
    assert "amd: libhiprtc.so was not found in" in command(environment, "devices").stdout


def test_verify_passes_and_leaves_nothing_behind(environment: dict[str, str], network_file: Path) -> None:
    arguments = ["verify", "--network", str(network_file), "--positions", "3", "--backend", BACKEND]
    done = command(environment, *arguments)
    assert done.returncode == 0, done.stderr
    assert "Stand-in gfx1100" in done.stdout
    report = json.loads(Path(environment["STANDIN_REPORT"]).read_text())
    assert report["alive"] == {}
    assert report["misuse"] == []
    environment["STANDIN_FAIL"] = "hipModuleLoadData:3:1:209"
    done = command(environment, *arguments)
    assert done.returncode == 1
    assert done.stderr == "error: Stand-in gfx1100: hipModuleLoadData: hipErrorNoBinaryForGpu (209)\n"
    assert json.loads(Path(environment["STANDIN_REPORT"]).read_text())["alive"] == {}


@pytest.mark.slow  # Compiles every form of each product, and runs it on fibers.
def test_tune_shows_a_table(
    machine: Runtime,
    network_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setattr(buckets, "BUCKETS", (1,))
    monkeypatch.setattr(tune_command, "run_in_child", lambda function, *given: function(*given))
    arguments = argparse.Namespace(
        network=str(network_file), device="amd:0", precision="fp32", weights="", rebuild=False
    )
    assert tune_command.run(arguments) == 0
    assert "16x32x32*2" in capsys.readouterr().out
    assert len(list(tmp_path.rglob("gemm/*.json"))) == 1
    assert machine.report().alive == {}


# -- the service ---------------------------------------------------------------------------------------


@contextmanager
def serving(network_file: Path) -> Iterator[tuple[EvaluatorService, EvaluatorClient]]:
    loader = Loader(devices(BACKEND))
    ready = threading.Event()
    network = NetworkToLoad(str(network_file))
    service = EvaluatorService(loader, [network], on_ready=lambda infos: ready.set())
    address = service.bind("tcp://127.0.0.1:0")
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            yield service, client
    finally:
        service.stop()
        thread.join(WAIT_S)
    assert not thread.is_alive()


def backend_of(service: EvaluatorService) -> gpu.GpuBackend:
    backend = service.record.networks.find("").runners[0].backend
    assert isinstance(backend, gpu.GpuBackend)
    return backend


def assert_right(client: EvaluatorClient, network_file: Path, seed: int) -> None:
    batch = probe_batch(3, seed=seed)
    expected = ReferenceBackend(load_network(network_file)).evaluate(batch)
    assert np.allclose(client.evaluate(batch).logits, expected.logits, atol=1e-4)


def test_a_device_that_fails_for_a_while_is_used_again(machine: Runtime, network_file: Path) -> None:
    with serving(network_file) as (service, client):
        assert_right(client, network_file, 1)
        machine.fail("hipGraphLaunch", 999, nth=2)
        for seed in range(2, 6):
            assert_right(client, network_file, seed)
        metrics = client.status().metrics
        assert metrics["device_failures"] == 1
        assert metrics["fallback_batches"] == 1
        assert metrics["device_memory"]["0:gpu"]["used"] == machine.report().used[0] > 0
        assert service.record.state().device_memory["0:gpu"]["total"] == 8589934592
    assert machine.report().alive == {}


def test_power_and_temperature_are_in_the_status(
    machine: Runtime, network_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "PCI_DEVICES", tmp_path)
    folder = tmp_path / discover().devices[0].pci / "hwmon" / "hwmon3"
    folder.mkdir(parents=True)
    (folder / "temp1_input").write_text("46000\n")
    (folder / "power1_average").write_text("38500000\n")
    with serving(network_file) as (_, client):
        while not (told := client.status().metrics["device_sensors"]):
            time.sleep(0.01)
        assert told == {"0:gpu": {"watts": 38.5, "celsius": 46.0}}


def test_a_device_that_is_lost_is_replaced_by_the_fallback(machine: Runtime, network_file: Path) -> None:
    with serving(network_file) as (_, client):
        machine.fail("launch", 719)
        for seed in range(6):
            assert_right(client, network_file, seed)
        metrics = client.status().metrics
        assert metrics["device_failures"] == 3  # then it is left out
        assert metrics["fallback_batches"] >= 6  # a batch may be cut
        assert metrics["device_memory"] == {}


def test_nan_stays_inside(machine: Runtime, network_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(network_file) as (service, client):
        assert_right(client, network_file, 1)
        # As if a bit had flipped in the device's memory: the biases of the policy are NaN.
        weights = backend_of(service).executor.device_stream.buffers.weights
        name = next(each for each in weights if "policy" in each)
        before = ctypes.string_at(weights[name], 64)
        ctypes.memset(weights[name], 0xFF, 64)
        with caplog.at_level(logging.WARNING):
            assert_right(client, network_file, 2)
        assert "gave NaN or infinity; evaluating again on the standby" in caplog.text
        counted = client.status().metrics["not_finite"]
        assert counted >= 1  # the batch may be cut
        ctypes.memmove(weights[name], before, 64)
        assert_right(client, network_file, 3)
        metrics = client.status().metrics
        assert metrics["not_finite"] == metrics["fallback_batches"] == counted
        assert metrics["device_failures"] == 0


def test_a_first_start_serves_at_once_and_is_tuned_behind(
    environment: dict[str, str],
    machine: Runtime,
    network_file: Path,
    kernel_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Compilers are slow at the priority of what measures behind: it finds what it needs.
    monkeypatch.setenv(CACHE, str(cache_with_kernels(tmp_path / "other", kernel_cache)))
    gpu.open(load_network(network_file), precision="fp32", buckets="1").close()
    environment[CACHE] = str(cache_with_kernels(tmp_path / "cache", kernel_cache))
    flags = ("--embedded", "--backend", "gpu:precision=fp32,buckets=1", "--network", str(network_file))
    program = ("-m", "tests.hip_runtime.command")
    with processes.serving(environment, *flags, program=program) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = map(json.loads, process.stdout)
        address = next(each["address"] for each in told if each["event"] == "bound")
        assert any(each["event"] == "ready" for each in told)
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            assert_right(client, network_file, 1)
            while client.status().metrics["tuning"]:
                assert_right(client, network_file, 2)
                time.sleep(0.2)  # nobody asks for anything
            assert_right(client, network_file, 3)
        process.stdin.close()
        process.stdin = None
        assert process.wait(WAIT_S) == 0
    assert len(list((tmp_path / "cache").rglob("gemm/*.json"))) == 1


def test_serving_process_survives_a_failure(environment: dict[str, str], network_file: Path) -> None:
    environment["STANDIN_FAIL"] = "hipMemcpyAsync:1:1:999;hipGraphLaunch:40:1:999"
    environment["STANDIN_ORDER"] = "7"
    flags = ("--embedded", "--backend", BACKEND, "--network", str(network_file))
    with processes.serving(environment, *flags, program=("-m", "tests.hip_runtime.command")) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline())]
        while events[-1]["event"] in ("bound", "progress"):
            events.append(json.loads(process.stdout.readline()))
        assert [each["event"] for each in events if each["event"] != "progress"] == ["bound", "ready"], events
        with EvaluatorClient(events[0]["address"], timeout=WAIT_S) as client:
            for _ in range(60):
                assert len(client.evaluate(probe_batch(3))) == 3
            metrics = client.status().metrics
            assert metrics["device_failures"] == 1
            assert metrics["fallback_batches"] == 0  # it works again at once, and runs the batch itself
            assert metrics["device_memory"]["0:gpu"]["total"] == 512 << 20
        process.stdin.close()
        process.stdin = None
        assert process.wait(WAIT_S) == 0
    report = json.loads(Path(environment["STANDIN_REPORT"]).read_text())
    assert report["alive"] == {}
    assert report["misuse"] == []

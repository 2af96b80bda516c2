# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs whose driver or library ends the process: the engine plays on, and commands say what happened."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from tests.evaluator.backends.gpu.fibers import cache_with_kernels
from tests.paths import CACHE
from tests.programs import run, say, started

pytestmark = pytest.mark.kernels

ONE = "gfx1100,name=Discrete,memory_mb=2048,processors=48"
TWO = f"{ONE};gfx1030,name=Other,memory_mb=2048,processors=36"
UCI_LIMIT_S = 200


@pytest.fixture(scope="module")
def network_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "tiny.pb.gz"
    write_network(random_network("tiny-attention", seed=3), path, license="none")
    return path


@pytest.fixture
def environment(rocm: Path, kernel_cache: Path, tmp_path: Path) -> dict[str, str]:
    """Of a process on a machine with an AMD GPU. Its cache holds kernels alone."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "from evaluator.backends.gpu.driver import discovery\n"
        f"discovery.DEVICE_NODES['amd'] = ({os.devnull!r},)\n"
    )
    cache = cache_with_kernels(tmp_path / "cache", kernel_cache)
    return {
        **os.environ,
        "ROCM_PATH": str(rocm),
        "LD_LIBRARY_PATH": str(rocm / "lib"),
        "STANDIN_DEVICES": ONE,
        CACHE: str(cache),
        "PYTHONPATH": str(site),
    }


def play(environment: dict[str, str], network: Path, *options: str) -> list[str]:
    """What an engine with default options prints that is asked for a move, without its list of options."""
    commands = ["uci", f"setoption name WeightsFile value {network}", *options, "isready", "go nodes 20"]
    command = [sys.executable, "-P", "-c", "from engine.cli import console; console()"]
    lines = []
    with started(*command, env=environment, stderr=None) as process:
        assert process.stdout is not None
        say(process, "\n".join(commands) + "\n")
        for line in process.stdout:
            if not line.startswith("option "):
                lines.append(line.rstrip())
            if line.startswith("bestmove"):
                break
        process.communicate(timeout=UCI_LIMIT_S)
    return lines


def evaluator(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-P", "-m", "evaluator", *arguments)
    return run(*command, status=None, env=environment, timeout=UCI_LIMIT_S)


@pytest.mark.parametrize(
    "call", ["hipGetDeviceCount", "hipGetDeviceProperties", "hipModuleLoadData", "hipGraphLaunch"]
)
def test_a_gpu_that_crashes_costs_one_restart_and_is_not_tried_again(
    environment: dict[str, str], network_file: Path, call: str
) -> None:
    environment["STANDIN_ABORT"] = call
    lines = play(environment, network_file)
    assert any(line.startswith("bestmove") for line in lines), lines
    assert sum("crashed (SIGABRT)" in line for line in lines) == 1, lines
    assert sum("is used instead" in line and "--retry-gpu" in line for line in lines) == 1, lines
    again = play(environment, network_file)
    assert any(line.startswith("bestmove") for line in again), again
    assert not any("crashed (" in line for line in again)
    assert sum("--retry-gpu" in line for line in again) == 1


def test_without_a_cache_folder_a_crash_is_remembered_for_the_engine(
    environment: dict[str, str], network_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    environment |= {CACHE: str(tmp_path / "file"), "STANDIN_ABORT": "hipModuleLoadData"}
    environment["TMPDIR"] = str(tmp_path)
    lines = play(environment, network_file)
    assert any(line.startswith("bestmove") for line in lines), lines
    assert sum("crashed (SIGABRT)" in line for line in lines) == 1, lines
    assert not [*tmp_path.glob("wavefront-crashes-*")]


def test_crashed_gpu_is_refused_and_retried_if_asked(environment: dict[str, str], network_file: Path) -> None:
    environment["STANDIN_ABORT"] = "hipModuleLoadData"
    play(environment, network_file)
    del environment["STANDIN_ABORT"]
    lines = play(environment, network_file, "setoption name Backend value gpu:device=amd:0")
    assert any("Discrete (amd:0) is not used" in line and "--retry-gpu" in line for line in lines), lines
    assert not any(line.startswith("bestmove") and "none" not in line for line in lines)
    listed = json.loads(evaluator(environment, "devices", "--json").stdout)
    assert (listed["excluded"], listed["taken"]) == (["amd:0"], None)
    listed = json.loads(evaluator(environment, "devices", "--json", "--retry-gpu").stdout)
    assert (listed["excluded"], listed["taken"]) == ([], "amd:0")


def test_the_next_gpu_is_taken_where_there_is_one(environment: dict[str, str], network_file: Path) -> None:
    environment |= {"STANDIN_ABORT": "hipModuleLoadData", "STANDIN_DEVICES": TWO}
    lines = play(environment, network_file)
    assert any(line.startswith("bestmove") for line in lines), lines
    assert any("crashed (SIGABRT)" in line for line in lines)
    said = [line for line in lines if "is used instead" in line]
    assert any("Discrete (amd:0)" in line for line in said)
    assert any("Other (amd:1)" in line for line in lines)


def test_a_library_that_aborts_is_omitted_and_the_gpu_is_used(
    environment: dict[str, str], network_file: Path, tmp_path: Path
) -> None:
    environment["STANDIN_ABORT"] = "hipblasGemmEx"
    flags = ("--backend", "gpu:precision=fp32,buckets=1,tuning=off", "--batch", "1", "--time-limit", "0.2")
    for _ in range(2):
        done = evaluator(environment, "bench", "--network", str(network_file), *flags)
        assert done.returncode == 0, done.stderr
        assert "Discrete" in done.stdout + done.stderr
    assert "hipBLAS" in (tmp_path / "cache" / "wavefront" / "crashes" / "libraries.json").read_text()


def test_report_says_how_measuring_ended(environment: dict[str, str], tmp_path: Path) -> None:
    environment["STANDIN_ABORT"] = "hipModuleLoadData"
    out = tmp_path / "report.json"
    flags = ["--network", "random:tiny-attention", "--max-batch", "1", "--no-libraries", "--out", str(out)]
    assert evaluator(environment, "report", *flags).returncode == 1
    report = json.loads(out.read_text())
    (run,) = report["runs"]
    assert report["devices"][0]["name"] == "Discrete"
    assert "SIGABRT" in run["error"]
    assert "Memory access fault" in "".join(run["stderr"])


def test_verify_and_tune_tell_how_their_process_ended(environment: dict[str, str]) -> None:
    environment["STANDIN_ABORT"] = "hipModuleLoadData"
    done = evaluator(environment, "verify", "--network", "random:tiny-attention", "--backend=gpu:buckets=1")
    assert done.returncode == 1
    assert "ended by SIGABRT" in done.stderr
    assert "Memory access fault" in done.stderr
    done = evaluator(environment, "tune", "--network", "random:tiny-attention")
    assert done.returncode == 1
    assert "ended by SIGABRT" in done.stderr

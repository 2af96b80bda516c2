# SPDX-License-Identifier: GPL-3.0-or-later
"""The file that an owner of a GPU sends in: here of a machine without one."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from evaluator import cli
from evaluator.backends import BackendError
from evaluator.backends.common.agreement import FP32
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.blas.library import LibraryProduct
from evaluator.backends.gpu.driver import discovery
from evaluator.backends.gpu.options import PRECISIONS, Formats
from evaluator.backends.gpu.plan.plan import FP8_POSITIONS
from evaluator.backends.gpu.plan.program import Buffer, LibraryStep, Space
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.commands import report as report_command
from evaluator.network.random_network import random_network
from evaluator.network.spec import Activation
from protocol.batch import EvaluationBatch, PositionBatch


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"amd": ("/nowhere/kfd",), "nvidia": ("/nowhere/nvidiactl",)}
    monkeypatch.setattr(discovery, "DEVICE_NODES", nowhere)


def test_a_machine_without_a_gpu_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    assert cli.main(["report", "--network", "random:tiny-attention", "--out", str(out)]) == 0
    assert "no GPU can be used here" in capsys.readouterr().err
    report = json.loads(out.read_text())
    assert report["devices"] == report["runs"] == []
    assert set(report["problems"]) == {"amd", "nvidia"}
    assert report["machine"]["wavefront"]


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--network", "random:tiny-attention", "--out", str(tmp_path)]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_a_network_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "--network", "no-such-file"]) == 1
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_report_has_the_failures_of_a_gpu_in_every_precision(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **options: object) -> None:
        assert options["precision"] == precision
        logging.getLogger("evaluator.backends.gpu").warning("without hipBLASLt")
        raise BackendError(f"{options['device']}: fails its self-check; see /home/someone/cache/log")

    monkeypatch.setattr(report_command, "open_gpu", refuse)
    monkeypatch.setattr(report_command, "run_in_child", lambda function, *given: function(*given))
    out = tmp_path / "report.json"
    flags = ["--network", "random:tiny-attention", "--device", "amd:0", "--precision", precision]
    assert cli.main(["report", *flags, "--out", str(out)]) == 1
    (run,) = json.loads(out.read_text())["runs"]
    assert run["precision"] == precision
    assert run["error"] == "amd:0: fails its self-check; see .../log"
    assert run["log"] == ["WARNING: without hipBLASLt"]


@pytest.mark.parametrize(("fp8", "positions"), [(0, 8), (FP8_POSITIONS, FP8_POSITIONS)])
def test_as_many_positions_are_compared_as_products_of_8_bits_take(fp8: bool, positions: int) -> None:
    """Fewer would be computed in fp16, and agree whatever 8 bits do."""
    network, compared = random_network("tiny-attention"), list[int]()

    def evaluate(batch: PositionBatch) -> EvaluationBatch:
        compared.append(len(batch))
        return ReferenceBackend(network).evaluate(batch)

    backend = SimpleNamespace(
        network=network, formats=Formats(fp8=fp8), max_batch=64, tolerance=FP32, evaluate=evaluate
    )
    assert report_command._agreement(cast("GpuBackend", backend))["ok"]
    assert compared == [positions]


def test_a_launch_by_a_library_is_text_too() -> None:
    product = LibraryProduct(4, 8, 16, 16, 8, bias=True, residual=False, activation=Activation.RELU)
    a, weights, out = (Buffer(Space.WORK, name) for name in ("a", "weights", "out"))
    step = LibraryStep("hipBLASLt", product, b"\x07", a, weights, None, None, out, "encoder0.q")
    backend = SimpleNamespace(executor=SimpleNamespace(profile=lambda size: [(step, 0.25)]))
    (row,) = json.loads(json.dumps(report_command._launches(cast("GpuBackend", backend), 1)))
    assert (row["label"], row["us"], row["library"]) == ("encoder0.q", 250, "hipBLASLt")
    assert (row["product"]["n"], row["product"]["activation"]) == (8, "relu")

"""The file that an owner of a GPU sends in: here of a machine without one."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from evaluator import cli
from evaluator.backends import BackendError
from evaluator.commands import report as report_command
from evaluator.gpu.driver import discovery


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


def test_what_fails_on_a_gpu_is_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **options: object) -> None:
        logging.getLogger("evaluator.gpu").warning("without hipBLASLt")
        raise BackendError(f"{options['device']}: fails its self-check; see /home/someone/cache/log")

    monkeypatch.setattr(report_command, "open_gpu", refuse)
    out = tmp_path / "report.json"
    flags = ["--network", "random:tiny-attention", "--device", "amd:0", "--out", str(out)]
    assert cli.main(["report", *flags]) == 1
    (run,) = json.loads(out.read_text())["runs"]
    assert run["error"] == "amd:0: fails its self-check; see .../log"
    assert run["log"] == ["WARNING: without hipBLASLt"]

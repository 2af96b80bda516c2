# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of reports from AMD cards, of files that the report command writes for the stand-in runtime."""

import json
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator import cli
from evaluator.backends import BackendError
from evaluator.backends.common.agreement import FP32
from evaluator.backends.gpu.driver.discovery import discover
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.options import Formats
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.commands import report as report_command
from evaluator.network.random_network import random_network
from tests.hip_runtime.standin import Runtime
from tests.paths import REPOSITORY

reports: Any = import_module("scripts.amd_reports")

CARD = "gfx1100,name=AMD Radeon RX 7900 XTX,processors=48"
BUCKETS = (1, 32, 256)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "reports"
    made.mkdir()
    (made / "index.md").write_text(f"# Reports\n\n{reports.MARK}\n{reports.NO_REPORT}")
    return made


@pytest.fixture
def report(machine: Runtime, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A report of the command, whose network answers like the reference, a batch in 4 ms."""
    machine.reset(CARD)
    network = replace(random_network("tiny-attention"), name="bt4")

    def opened(*_: object, **options: object) -> Any:
        if options["device"] != "amd:0":
            raise BackendError("there is no GPU")
        executor = SimpleNamespace(time=lambda _: 4.0, profile=lambda _: [], device=SimpleNamespace())
        executor.device.info = discover().devices[0]
        return nullcontext(
            SimpleNamespace(
                network=network,
                device="AMD Radeon RX 7900 XTX",
                buckets=BUCKETS,
                max_batch=BUCKETS[-1],
                formats=Formats(stored=Precision.FP32),
                tolerance=FP32,
                evaluate=ReferenceBackend(network).evaluate,
                executor=executor,
            )
        )

    monkeypatch.setattr(report_command, "open_gpu", opened)
    monkeypatch.setattr(report_command, "network_of", lambda _: network)
    monkeypatch.setattr(report_command, "run_in_child", lambda function, *given: function(*given))
    out = tmp_path / "out.json"
    assert cli.main(["report", "--network", "random:bt4", "--out", str(out)]) == 0
    written: dict[str, Any] = json.loads(out.read_text())
    return written


def table(folder: Path) -> list[str]:
    reports.main(folder)
    text = (folder / "index.md").read_text("utf-8")
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def test_the_page_holds_the_reports_of_the_folder() -> None:
    index = REPOSITORY / "docs" / "reports" / "index.md"
    text, skipped = reports.page(index.read_text("utf-8"), index.parent)
    assert (index.read_text("utf-8"), []) == (text, skipped)


def test_measured_speeds_are_in_the_table(folder: Path, report: dict[str, Any]) -> None:
    (folder / "xtx.json").write_text(json.dumps(report))
    (line,) = table(folder)
    assert "[AMD Radeon RX 7900 XTX](xtx.json) gfx1100 | bt4 fp16 |" in line
    assert "| 250 | 8,000 | – |" in line
    assert "| 64,000 at 256 | ok | HIP 7.15 |" in line
    assert reports.NO_REPORT not in (folder / "index.md").read_text()


def test_failures_and_machines_without_a_gpu_are_rows(folder: Path, report: dict[str, Any]) -> None:
    (run,) = report["runs"]
    failed = {"device": "amd:0", "network": "random:t82", "precision": "fp16", "error": "a|b <i>c</i>\nd"}
    (folder / "failed.json").write_text(json.dumps(report | {"runs": [run, failed]}))
    nothing = {"devices": [], "runs": [], "problems": {"amd": "no driver"}}
    (folder / "none.json").write_text(json.dumps(report | nothing))
    lines = table(folder)
    assert len(lines) == 3
    assert "| t82 fp16 |" in lines[1] and "failed: a b  i c /i  d" in lines[1]
    assert "[none](none.json)" in lines[2] and "no driver" in lines[2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"ms": 4.0', '"ms": 0'),
        lambda text: text.replace('"device": "amd:0"', '"device": "amd:7"', 1),
    ],
    ids=["cut", "list", "format", "no time", "no device"],
)
def test_a_damaged_report_is_named_and_skipped(
    damage: Any, folder: Path, report: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(report)
    (folder / "good.json").write_text(text)
    (folder / "damaged.json").write_text(damage(text))
    (line,) = table(folder)
    assert "good.json" in line
    assert "damaged.json: skipped: " in capsys.readouterr().err

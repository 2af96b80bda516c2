# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront self-test`, here and in an installation with a wrong network."""

from __future__ import annotations

import json

import pytest

from engine import cli
from engine.commands import self_test

pytestmark = pytest.mark.integration


def test_this_installation_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["self-test", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    names = [each["check"] for each in found["checks"]]
    assert {"core", "UCI", "wavefront-cpu on the CPU", "wavefront-gpu on the CPU", "search"} <= set(names)


def test_wrong_outputs_are_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stored = json.loads(self_test.ANSWERS.read_text("utf-8"))["wavefront-cpu"]
    found = [{"q": each["q"], "policy": dict(each["policy"])} for each in stored]
    found[3]["q"] += 2 * self_test.CPU_LIMIT
    monkeypatch.setattr(self_test, "evaluated", lambda options: found)
    monkeypatch.setattr(
        self_test,
        "checks",
        lambda: [("network", lambda: self_test.compare("wavefront-cpu", "onnx", self_test.CPU_LIMIT))],
    )
    assert cli.main(["self-test"]) == 1
    assert "FAILED" in capsys.readouterr().out

# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront self-test`, here and in an installation with a wrong network."""

import json
import re
from typing import Any

import pytest

from engine import cli
from engine.commands import self_test
from engine.options import Options

pytestmark = pytest.mark.integration


def test_this_installation_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["self-test", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"]
    names = [each["check"] for each in found["checks"]]
    assert {"core", "UCI", "wavefront-cpu on the CPU", "wavefront-gpu on the CPU", "search"} <= set(names)


def test_self_test_finds_wrong_outputs_of_the_precision_that_is_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for precision, error in (("int8", 2 * self_test.INT8_LIMIT), ("fp32", 0.0)):
        found[precision] = json.loads(self_test.ANSWERS.read_text("utf-8"))["wavefront-cpu"]
        found[precision][3]["q"] += error

    def evaluated(options: Options) -> tuple[Any, str]:
        precision = "fp32" if "int8=false" in options.backend else "int8"
        return found[precision], f"CPU, {precision}"

    monkeypatch.setattr(self_test, "evaluated", evaluated)
    monkeypatch.setattr(self_test, "checks", lambda: [("network", lambda: self_test.on_cpu("wavefront-cpu"))])
    assert cli.main(["self-test"]) == 1
    assert re.search("FAILED.*int8", capsys.readouterr().out, re.DOTALL)

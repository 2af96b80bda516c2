"""What deploy/ holds fits the program: flags, files and metrics that are there."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from evaluator import cli
from evaluator.metrics import TIME_EDGES
from evaluator.settings import Settings, add_flags, from_arguments
from tests.paths import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
CONTAINERS = sorted(DEPLOY.glob("Containerfile.*"))
UNIT = DEPLOY / "wavefront-evaluator.service"


def metrics() -> set[str]:
    """Every name that a scrape may have."""
    rows = re.findall(
        r"^\| `(\w+)(?:\{.*\})?` \| (\w+) \|", (REPOSITORY / "docs/metrics.md").read_text(), re.M
    )
    names = {name for name, kind in rows if kind != "histogram"}
    parts = ("bucket", "sum", "count")
    return names | {f"{name}_{part}" for name, kind in rows if kind == "histogram" for part in parts}


def check_serve(command: list[str]) -> None:
    """Whether a command line of `serve` is understood."""
    assert command[0].endswith("wavefront-evaluator")
    assert command[1] == "serve"
    parser = argparse.ArgumentParser()
    add_flags(parser)
    arguments = parser.parse_args(command[2:])
    arguments.config = None
    assert from_arguments(arguments).address


@pytest.mark.parametrize("name", ["alerts.yml", "grafana-dashboard.json"])
def test_only_metrics_that_are_there_are_asked_for(name: str) -> None:
    text = (DEPLOY / name).read_text()
    asked = set(re.findall(r"\bwavefront_\w+", text))
    assert len(asked) > 5
    assert asked - metrics() == set()


def test_every_panel_of_the_dashboard_asks_for_something() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) > 5
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert all(target["expr"].count("(") == target["expr"].count(")") for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_a_container_starts_and_checks_what_there_is(path: Path) -> None:
    assert len(CONTAINERS) == 2
    instructions = dict(re.findall(r"^(ENTRYPOINT|HEALTHCHECK .*CMD) (\[.*\])$", path.read_text(), re.M))
    entry, check = (json.loads(value) for _, value in sorted(instructions.items()))
    check_serve(entry)
    assert check[1] in cli.COMMANDS


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_a_container_has_what_zstd_needs(path: Path) -> None:
    (extras,) = re.findall(r"pip install --no-cache-dir '/src\[([\w,-]+)\]'$", path.read_text(), re.M)
    assert "compression" in extras.split(",")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def test_play_is_late_beyond_the_target_and_where_buckets_end() -> None:
    target_ms = Settings().play_latency_ms
    (alert,) = re.findall(
        r"alert: EvaluatorPlayIsLate\n(.*?)(?=      - alert:)", (DEPLOY / "alerts.yml").read_text(), re.S
    )
    (threshold,) = re.findall(r"expr: .* > ([\d.]+)$", alert, re.M)
    assert float(threshold) == target_ms / 1000
    assert float(threshold) in TIME_EDGES, "between two edges a quantile is a guess"
    (told,) = re.findall(r"summary: .* target of ([\d.]+) ms\"$", alert, re.M)
    assert float(told) == target_ms


def test_the_unit_starts_what_there_is() -> None:
    values = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.M))
    check_serve(shlex.split(values["ExecStart"]))
    assert values["Type"] == "notify"
    assert float(values["TimeoutStopSec"]) > 30.0  # exit_timeout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "wavefront-evaluator"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/wavefront/bin/wavefront-evaluator", str(program)))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert [line for line in checked.stderr.splitlines() if UNIT.name in line] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")
def test_prometheus_understands_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", str(DEPLOY / "alerts.yml")], check=True)

# SPDX-License-Identifier: GPL-3.0-or-later
"""What deploy/ holds fits the program: flags, files and metrics that are there."""

import argparse
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client import generate_latest

from engine.apps.web.server import PUBLIC
from engine.commands import web
from evaluator import cli
from evaluator.devices.metrics import TIME_EDGES
from evaluator.service.http.prometheus import registry
from evaluator.settings import Settings, add_flags, from_arguments
from tests.engine.flags import parser_of
from tests.evaluator.service.echo import numbered_batch
from tests.evaluator.service.harness import running
from tests.paths import REPOSITORY
from tests.programs import run

DEPLOY = REPOSITORY / "deploy"
CONTAINERS = sorted(DEPLOY.glob("Containerfile.*"))
SERVICES = [path for path in CONTAINERS if path.suffix != ".web"]
UNIT = DEPLOY / "wavefront-evaluator.service"
ALERTS = DEPLOY / "alerts.yml"


def metrics() -> set[str]:
    """Every name that a scrape may have."""
    rows = re.findall(
        r"^\| `(\w+)(?:\{.*\})?` \| (\w+) \|", (REPOSITORY / "docs/reference/metrics.md").read_text(), re.M
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


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="needs hadolint, of the extra lint")
@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_hadolint_finds_nothing_wrong_with_a_container(path: Path) -> None:
    run("hadolint", "--no-color", "--ignore", "DL3059", path)  # A build stage may have several RUN.


def test_containers_are_built_without_what_is_not_installed() -> None:
    """podman reads .containerignore, docker .dockerignore."""
    ignored = (REPOSITORY / ".containerignore").read_text()
    assert (REPOSITORY / ".dockerignore").read_text() == ignored
    names = {line for line in ignored.splitlines() if not line.startswith("#")}
    assert {".git", ".venv", "build", "tests"} <= names
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed = {*project["tool"]["scikit-build"]["wheel"]["packages"], "README.md", "LICENSE", "CMakeLists.txt"}
    assert not names & needed


def check_web(command: list[str]) -> None:
    """Whether a command line of `wavefront web` is understood."""
    assert command[0].endswith("/wavefront")
    assert parser_of(web).parse_args(command[2:]).token_file
    assert command[1] == "web"


def test_the_page_is_started_as_it_can_be() -> None:
    text = (DEPLOY / "Containerfile.web").read_text()
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.M)
    check_web(json.loads(entry))
    assert "8766/health" in text and "/health" in PUBLIC
    unit = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "wavefront-web.service").read_text(), re.M))
    check_web(shlex.split(unit["ExecStart"]))


def test_compose_and_kubernetes_start_what_there_is() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in compose.values():
        file = REPOSITORY / service["build"]["dockerfile"]
        (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", file.read_text(), re.M)
        command = [*json.loads(entry), *service["command"]]
        (check_web if file.suffix == ".web" else check_serve)(command)
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    check_serve([*container["command"], *container["args"]])
    assert pod["terminationGracePeriodSeconds"] > Settings().exit_timeout
    paths = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("liveness", "readiness")]
    assert paths == ["/live", "/ready"]


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_container_starts_and_checks_what_there_is(path: Path) -> None:
    text = path.read_text()
    for line in ("\nVOLUME /keys /cache\n", "\nENV XDG_CACHE_HOME=/cache\n", " -v wavefront-cache:/cache "):
        assert line in text
    instructions = dict(re.findall(r"^(ENTRYPOINT|HEALTHCHECK .*CMD) (\[.*\])$", text, re.M))
    entry, check = (json.loads(value) for _, value in sorted(instructions.items()))
    check_serve(entry)
    assert check[1] in cli.COMMANDS


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_a_container_has_its_health_check_and_what_zstd_needs(path: Path) -> None:
    """podman drops HEALTHCHECK in its own format."""
    text = path.read_text()
    assert "\nHEALTHCHECK " in text
    assert f"podman build --format docker -f deploy/{path.name} " in text
    lock = "/src/deploy/requirements.lock"
    pattern = rf"uv pip install .* -c {lock} -b {lock} '/src\[([\w,-]+)\]'$"
    (extras,) = re.findall(pattern, text, re.M)
    assert "compression" in extras.split(",")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def test_play_is_late_beyond_a_target_where_buckets_end() -> None:
    assert Settings().play_latency_ms / 1000 in TIME_EDGES, "between two edges a quantile is a guess"


def test_panels_of_several_services_tell_them_apart() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    for target in (target for panel in dashboard["panels"] for target in panel["targets"]):
        assert "{{instance}}" in target["legendFormat"], target
        for labels in re.findall(r"sum by \(([^)]*)\)", target["expr"]):
            assert "instance" in labels.split(", "), target


def test_the_unit_starts_what_there_is() -> None:
    values = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.M))
    check_serve(shlex.split(values["ExecStart"]))
    assert values["Type"] == "notify"
    assert float(values["TimeoutStopSec"]) > 30.0  # exit_timeout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
@pytest.mark.parametrize("name", ["wavefront-evaluator", "wavefront-web"])
def test_unit_gives_a_service_no_more_than_it_needs(name: str) -> None:
    unit = DEPLOY / f"{name}.service"
    done = run("systemd-analyze", "security", "--offline=true", "--threshold=30", unit, status=None)
    if "offline" in done.stderr:
        pytest.skip("this systemd cannot judge a unit that is not installed")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "\nMemoryMax=" in unit.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.service")), ids=lambda path: path.name)
def test_systemd_finds_nothing_wrong_with_a_unit(tmp_path: Path, path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / path.name
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={program}", path.read_text(), flags=re.M))
    checked = run("systemd-analyze", "verify", unit, status=None)
    assert [line for line in checked.stderr.splitlines() if path.name in line] == []


needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus"
)


def promtool(*arguments: str | Path, said: str = "") -> None:
    """Have Prometheus' own program check something; `said` is what it reads."""
    run("promtool", *arguments, input=said)


@needs_promtool
def test_prometheus_understands_the_rules() -> None:
    promtool("check", "rules", ALERTS)


@needs_promtool
def test_prometheus_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    # Grafana fills its own variables in.
    filled = [re.sub(r"\$\w+", "1m" if "_interval" in each else "x", each) for each in expressions]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(filled)]
    path = tmp_path / "rules.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # YAML, too
    promtool("check", "rules", path)


@needs_promtool
def test_prometheus_has_nothing_against_the_metrics(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        harness.client().evaluate(numbered_batch(3), priority="play")
        metrics = registry(harness.service.record.metrics, harness.service.record.state)
        promtool("check", "metrics", said=generate_latest(metrics).decode())


STARTED = {
    "EvaluatorNotReady": {"wavefront_ready": "0x20"},
    "EvaluatorDegraded": {'wavefront_state{state="degraded"}': "1x20"},
    "EvaluatorOnStandby": {"wavefront_fallback_batches_total": "0+60x20"},
    "EvaluatorPlayIsLate": {
        'wavefront_request_seconds_bucket{class="play",le="0.05"}': "0+98x20",
        'wavefront_request_seconds_bucket{class="play",le="0.1"}': "0+100x20",
        'wavefront_request_seconds_bucket{class="play",le="+Inf"}': "0+100x20",
    },
    "EvaluatorRefuses": {'wavefront_errors_total{code="overloaded"}': "0+60x20"},
    "EvaluatorDropsAnswers": {"wavefront_dropped_replies_total": "0+120x20"},
    "EvaluatorHangs": {'wavefront_device_hangs_total{device="0:gpu"}': "0x8 1x12"},
    "EvaluatorIsFull": {'wavefront_closed_connections_total{reason="connections"}': "0x8 1x12"},
    "EvaluatorIsFlooded": {'wavefront_closed_connections_total{reason="silent"}': "0+1200x20"},
    "EvaluatorClosesConnections": {'wavefront_closed_connections_total{reason="unread"}': "0+60x20"},
}
"""What starts each alert: values of each minute, as `first+step x times`."""

QUIET = {
    "wavefront_ready": "1x20",
    'wavefront_state{state="degraded"}': "0x20",
    "wavefront_fallback_batches_total": "7x20",
    'wavefront_request_seconds_bucket{class="play",le="0.05"}': "0+100x20",
    'wavefront_request_seconds_bucket{class="play",le="+Inf"}': "0+100x20",
    'wavefront_request_seconds_bucket{class="selfplay",le="0.05"}': "0x20",
    'wavefront_request_seconds_bucket{class="selfplay",le="+Inf"}': "0+100x20",
    'wavefront_errors_total{code="bad_request"}': "0+60x20",
    "wavefront_dropped_replies_total": "0+6x20",
    'wavefront_target_seconds{class="play"}': "0.05x20",
    'wavefront_device_hangs_total{device="0:gpu"}': "3x20",
    'wavefront_closed_connections_total{reason="connections"}': "3x20",
    'wavefront_closed_connections_total{reason="silent"}': "0+60x20",
    'wavefront_closed_connections_total{reason="late"}': "0+60x20",
}
"""What no alert is for."""


@needs_promtool
@pytest.mark.parametrize("alert", ["", *STARTED])
def test_each_alert_goes_off_by_what_it_is_for_and_by_nothing_else(tmp_path: Path, alert: str) -> None:
    series = QUIET | STARTED[alert] if alert else QUIET
    fired = 'count by (alertname) (ALERTS{alertstate="firing"})'
    wanted = [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else []
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": fired, "eval_time": "15m", "exp_samples": wanted}],
    }
    path = tmp_path / "test.yml"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    promtool("test", "rules", path)


def test_every_alert_is_tried() -> None:
    assert set(re.findall(r"alert: (\w+)", ALERTS.read_text())) == set(STARTED)


def test_lock_has_each_dependency_with_hashes_and_in_its_range() -> None:
    text = (DEPLOY / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([\w.-]+)==([\w.+!-]+)", text, re.M))
    entries = [entry for entry in re.split(r"^(?=[\w.-]+==)", text, flags=re.M) if "==" in entry]
    assert len(entries) == len(locked) and all("--hash=sha256:" in entry for entry in entries)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = map(Requirement, [*project["dependencies"], *extras["nvidia"], *extras["compression"]])
    for requirement in wanted:
        version = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: run scripts/lock"

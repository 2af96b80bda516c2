"""The metrics as Prometheus reads them."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from evaluator.metrics import Metrics, State
from evaluator.service.health import serve_health
from evaluator.service.prometheus import registry
from tests.evaluator.service.harness import WAIT_S, numbered_batch, running
from tests.paths import REPOSITORY

STATE = State(ready=True, clients=2, queued_positions=7, device_memory={"0:gpu": {"used": 3, "total": 5}})


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of an exposition, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def exposed(metrics: Metrics, state: State = STATE) -> str:
    """What a scrape would read."""
    return generate_latest(registry(metrics, lambda: state)).decode()


def test_counts_of_any_size_are_exact() -> None:
    metrics = Metrics()
    metrics.positions.add(123_456_789_012)
    metrics.positions.add()
    assert samples(exposed(metrics))["wavefront_positions_total", ()] == 123_456_789_013


def test_times_are_in_seconds_and_memory_in_bytes() -> None:
    metrics = Metrics()
    metrics.batch(4, 0.25)
    metrics.answered(1, 4, 0.015)
    found = samples(exposed(metrics))
    assert found["wavefront_compute_seconds_total", ()] == 0.25
    assert found["wavefront_queue_seconds_sum", ()] == 0.015
    assert found["wavefront_queue_seconds_bucket", (("le", "0.01"),)] == 0
    assert found["wavefront_queue_seconds_bucket", (("le", "0.02"),)] == 1
    assert found["wavefront_queue_seconds_bucket", (("le", "+Inf"),)] == 1
    assert found["wavefront_device_memory_bytes", (("device", "0:gpu"), ("what", "total"))] == 5
    assert found["wavefront_requests_total", (("class", "analysis"),)] == 1
    assert found["wavefront_request_positions_total", (("class", "analysis"),)] == 4


def test_every_metric_is_documented_with_its_type() -> None:
    rows = re.findall(
        r"^\| `(\w+)(?:\{(.*)\})?` \| (\w+) \|", (REPOSITORY / "docs/metrics.md").read_text(), re.MULTILINE
    )
    metrics = Metrics()
    metrics.error("overloaded")
    families = {
        family.name + "_total" * (family.type == "counter"): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in registry(metrics, lambda: STATE).collect()
    }
    assert {name: (kind, set(filter(None, labels.split(", ")))) for name, labels, kind in rows} == families


def test_a_request_a_position_and_a_batch_are_counted_once(tmp_path: Path) -> None:
    with running(tmp_path) as harness:
        client = harness.client()
        for count in (3, 5):
            client.evaluate(numbered_batch(count))
        found = samples(exposed(harness.service.metrics, harness.service.state()))
        assert found["wavefront_requests_total", (("class", "play"),)] == 2
        assert found["wavefront_positions_total", ()] == 8
        assert found["wavefront_batch_size_sum", ()] == 8
        assert found["wavefront_batches_total", ()] == found["wavefront_batch_size_count", ()] == 2


def test_the_endpoint_says_live_ready_and_the_metrics(tmp_path: Path) -> None:
    with running(tmp_path) as harness, serve_health(0, harness.service) as port:

        def get(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=WAIT_S) as reply:
                return str(reply.read().decode())

        assert get("live") == "live\n"
        assert get("ready") == "ready\n"
        assert "wavefront_ready 1.0\n" in get("metrics")
        assert get("metrics?name[]=wavefront_ready").splitlines()[-1] == "wavefront_ready 1.0"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get("nothing")


def test_a_service_without_a_metrics_port_does_not_wait_for_the_library() -> None:
    code = "import sys, evaluator.service.service; print('prometheus_client' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=REPOSITORY) == "False\n"

# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics as Prometheus reads them."""

import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from evaluator.devices.metrics import Metrics, State
from evaluator.service.http.prometheus import registry
from evaluator.service.http.routes import serve_health
from tests.evaluator.service.echo import WAIT_S, numbered_batch
from tests.evaluator.service.harness import running, serving
from tests.evaluator.states import STATE

BATCHES = (("device", "0:gpu"), ("network", "t82"))
ANALYSIS = (("class", "analysis"), ("network", "t82"))


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
    metrics.batch("t82", "0:gpu", 123_456_789_012, 0.1)
    metrics.batch("t82", "0:gpu", 1, 0.1)
    found = samples(exposed(metrics))
    assert found["wavefront_positions_total", BATCHES] == 123_456_789_013


def test_times_are_in_seconds_and_memory_in_bytes() -> None:
    metrics = Metrics()
    metrics.batch("t82", "0:gpu", 4, 0.25)
    metrics.answered("t82", 1, 4, 0.015, 0.3)
    found = samples(exposed(metrics))
    assert found["wavefront_batch_seconds_sum", BATCHES] == 0.25
    assert found["wavefront_queue_seconds_sum", ANALYSIS] == 0.015
    assert found["wavefront_request_seconds_sum", ANALYSIS] == 0.3
    first, *others = ANALYSIS
    for edge, count in (("0.01", 0), ("0.02", 1), ("+Inf", 1)):
        assert found["wavefront_queue_seconds_bucket", (first, ("le", edge), *others)] == count
    assert found["wavefront_device_memory_bytes", (("device", "0:gpu"), ("what", "total"))] == 5
    assert found["wavefront_requests_total", ANALYSIS] == 1
    assert found["wavefront_request_positions_total", ANALYSIS] == 4
    assert found["wavefront_queued_positions", (("class", "play"), ("network", "t82"))] == 5


def test_devices_that_fail_are_named() -> None:
    metrics = Metrics()
    metrics.device_failed("0:gpu")
    metrics.device_hung("1:gpu")
    found = samples(exposed(metrics))
    assert found["wavefront_device_failures_total", (("device", "0:gpu"),)] == 1
    assert found["wavefront_device_hangs_total", (("device", "1:gpu"),)] == 1
    assert found["wavefront_device_in_use", (("device", "0:gpu"),)] == 1


def test_a_request_a_position_and_a_batch_are_counted_once(tmp_path: Path) -> None:
    with serving(tmp_path) as (harness, client):
        for count in (3, 5):
            client.evaluate(numbered_batch(count))
        found = samples(exposed(harness.service.record.metrics, harness.service.record.state()))
        batches = (("device", "0:echo"), ("network", "echo"))
        assert found["wavefront_requests_total", (("class", "play"), ("network", "echo"))] == 2
        assert found["wavefront_positions_total", batches] == 8
        assert found["wavefront_batch_size_sum", batches] == 8
        assert found["wavefront_batches_total", batches] == found["wavefront_batch_size_count", batches] == 2


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_the_endpoint_is_where_it_is_asked_for(tmp_path: Path) -> None:
    with running(tmp_path) as harness, serve_health("::1", 0, harness.service.record) as port:
        with urllib.request.urlopen(f"http://[::1]:{port}/live", timeout=WAIT_S) as reply:
            assert reply.read() == b"live\n"
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
            socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)

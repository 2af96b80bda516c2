# SPDX-License-Identifier: GPL-3.0-or-later
"""The page: its files, the document that it shows, and who is answered."""

import json
import logging
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from email.message import Message
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest

from evaluator import page
from evaluator.backends.common.sensors import Sensors
from evaluator.devices.opening.loading import Loader
from evaluator.devices.running.failover import MAX_FAILURES
from evaluator.service.http.overview import StatusDocument
from evaluator.service.http.routes import serve_health
from evaluator.service.networks import NetworkToLoad
from evaluator.service.service import EvaluatorService
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.wire.messages import PRIORITIES
from tests.evaluator.service.echo import WAIT_S, EchoBackend, expected, numbered_batch
from tests.evaluator.service.harness import Harness, devices, running
from tests.evaluator.service.test_failures import failing

pytestmark = pytest.mark.integration

SCHEMA = json.loads(page.files()["/page/status.schema.json"].body)

OWN_NAME = socket.gethostname()

MALICE = "<script>document.title = 'taken'</script>"


@contextmanager
def shown(
    folder: Path, hosts: tuple[str, ...] = (), kept_s: float = 0.0, **options: Any
) -> Iterator[tuple[Harness, int]]:
    """A service with its page, and the page's port. kept_s: a document is put together at most this often."""
    with (
        patch("evaluator.service.http.routes.KEPT_S", kept_s),
        running(folder, **options) as harness,
        serve_health("127.0.0.1", 0, harness.service.record, hosts) as port,
    ):
        yield harness, port


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, "Message[str, str]", bytes]:
    """Status, headers and body of an answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def document(port: int) -> dict[str, Any]:
    """The document as it is now; it follows the schema."""
    told: dict[str, Any] = json.loads(get(port, "/status")[2])
    jsonschema.validate(told, SCHEMA)
    return told


def test_page_loads_only_what_the_service_has(tmp_path: Path) -> None:
    with shown(tmp_path) as (_, port):
        wanted, seen = ["/"], set()
        while wanted:
            path = wanted.pop()
            seen.add(path)
            status, headers, body = get(port, path)
            assert status == 200, path
            text = body.decode()
            if path.endswith(".json"):
                continue  # It names its dialect by an address.
            assert not re.search(r"""["'(]\s*(https?:)?//(?!www\.w3\.org/)""", text), path
            if headers["Content-Type"].startswith(("text/html", "text/javascript")):
                found = re.findall(r'(?:href|src)="(/[^"]*)"', text)
                found += [f"/page/{name}" for name in re.findall(r'from "\./([^"]*)"', text)]
                wanted += set(found) - seen - {"/metrics", "/live", "/ready", "/status"}
        assert seen == set(page.files())


def test_nothing_but_its_own_files_can_run_in_the_page(tmp_path: Path) -> None:
    with shown(tmp_path) as (_, port):
        for path in (*page.files(), "/status"):
            _, headers, _ = get(port, path)
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
    for path, file in page.files().items():
        assert not re.search(
            rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", file.body
        ), path


def test_head_query_strings_and_other_paths_and_methods(tmp_path: Path) -> None:
    with shown(tmp_path) as (_, port):
        for path in ("/", "/status", "/page/page.js", "/ready"):
            status, headers, body = get(port, path, "HEAD")
            assert (status, body) == (200, b"")
            assert int(headers["Content-Length"]) > 0
        assert get(port, "/?tab=1")[0] == 200
        assert get(port, "/status?now")[0] == 200
        assert get(port, "/metrics?name[]=wavefront_ready")[2].splitlines()[-1] == b"wavefront_ready 1.0"
        for path in ("/page/", "/page/../routes.py", "/page/%2e%2e/a.py", "//[", "/page/page.js/", "/Status"):
            assert get(port, path)[0] == 404, path
        status, _, body = get(port, "/status", "POST")
        assert status == 405
        assert b"<" not in body


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9000", "localhost", "[::1]:9000", "10.1.2.3", "a.localhost", "wf.example", OWN_NAME]
)
def test_the_page_is_there_by_address_and_by_names_of_its_own(tmp_path: Path, host: str) -> None:
    with shown(tmp_path, ("WF.example.",)) as (_, port):
        assert get(port, "/", Host=host)[0] == 200
        assert get(port, "/status", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[", "@"]
)
def test_a_foreign_host_name_gets_nothing(tmp_path: Path, host: str) -> None:
    with shown(tmp_path) as (_, port):
        for path in ("/", "/status", "/page/page.js", "/metrics"):
            status, _, body = get(port, path, Host=host)
            assert status == 421
            assert b"page_host" in body
        assert get(port, "/live", Host=host)[0] == 200


def test_it_says_what_a_status_reply_says(tmp_path: Path) -> None:
    with shown(tmp_path, backends=("first", "second")) as (harness, port):
        client = harness.client()
        client.evaluate(numbered_batch(5))
        while any(client.status().metrics["running"].values()):
            pass  # An answer is sent before its batch is over.
        reply = json.loads(json.dumps(asdict(client.status())))
        _, headers, body = get(port, "/status")
        assert headers["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == "no-store"
        told = json.loads(body)
        passing = {"uptime_s", "positions_per_second"}
        assert reply["metrics"].keys() == told["metrics"].keys()
        for key in reply["metrics"].keys() - passing:
            assert reply["metrics"][key] == told["metrics"][key], key
        for network, more in zip(reply["networks"], told["networks"], strict=True):
            assert network.items() <= more.items()
        for key in reply.keys() - {"id", "metrics", "networks"}:
            assert reply[key] == told[key], key
        assert told["addresses"] == [harness.address]
        assert told["instance"] == client.instance


def test_devices_networks_and_classes_tell_what_ran(tmp_path: Path) -> None:
    with shown(tmp_path) as (harness, port):
        client = harness.client()
        for priority, count in (("play", 3), ("selfplay", 7)):
            client.evaluate(numbered_batch(count), priority=priority)  # type: ignore[arg-type]
        told = document(port)
        (network,) = told["networks"]
        (run,) = network["runs"]
        assert [positions for positions, _ in run["recent"]] == [3, 7]
        assert [network["batch_sizes"][size] for size in ("4", "8", "count")] == [1, 1, 2]
        assert (network["default"], network["aliases"]) == (True, ["default"])
        (device,) = told["devices"]
        assert (device["name"], device["hardware"], device["in_use"]) == ("0:echo", "test", True)
        assert device["last_batch"]["positions"] == 7
        assert 0 < device["busy"] <= 1
        play, analysis, selfplay = told["classes"]
        assert [each["name"] for each in told["classes"]] == list(PRIORITIES)
        assert play["positions_per_second"] > 0
        assert selfplay["positions_per_second"] > play["positions_per_second"]
        assert 0 < play["queue_ms"]["p50"] <= play["queue_ms"]["p99"]
        assert play["queue_ms"]["p99"] <= play["whole_ms"]["p99"]
        assert analysis["whole_ms"] == {"p50": None, "p99": None}
        assert analysis["requests_per_second"] == 0


def test_the_page_has_queued_and_running_work(tmp_path: Path) -> None:
    with shown(tmp_path) as (harness, port):
        client = harness.client(name="a client")
        harness.backend.hold()
        client.submit(numbered_batch(4), priority="analysis")
        harness.backend.wait_entered()
        for _ in range(3):
            client.submit(numbered_batch(2), priority="selfplay")
        client.ping()
        told = document(port)
        assert told["devices"][0]["running"] == 1
        assert [each["queued"] for each in told["classes"]] == [0, 0, 6]
        (row,) = told["clients"]
        assert row["name"] == "a client"
        assert row["requests_in_flight"] == 4
        assert row["positions_in_flight"] == {"play": 0, "analysis": 4, "selfplay": 6}
        assert row["class"] == ""


def test_ready_is_by_class_while_batches_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of many batches keeps a class without answers."""
    monkeypatch.setattr("evaluator.devices.metrics.STALLED_TARGETS", 0)
    steps = threading.Semaphore(0)

    def step(batch: PositionBatch) -> EvaluationBatch:
        assert steps.acquire(timeout=WAIT_S)
        return expected(batch)

    with shown(tmp_path) as (harness, port):
        harness.backend.answer = step
        harness.client().submit(numbered_batch(4096), priority="analysis")
        harness.backend.wait_entered()
        harness.service.record.state()
        steps.release()
        harness.backend.wait_entered()
        assert get(port, "/ready?class=analysis")[0] == 503
        steps.release()
        harness.backend.wait_entered()
        assert get(port, "/ready?class=play")[0] == 200
        steps.release(9)


def test_ready_turns_false_while_no_class_gets_answers(tmp_path: Path) -> None:
    with shown(tmp_path) as (harness, port):
        client = harness.client()
        assert get(port, "/ready")[0] == 200
        harness.backend.hold()
        client.submit(numbered_batch(4), priority="play")
        harness.backend.wait_entered()
        client.submit(numbered_batch(2), priority="play")
        while get(port, "/ready")[0] == 200:
            pass
        told = document(port)
        assert (told["state"], told["ready"]) == ("degraded", False)
        assert "play" in told["reason"]
        harness.backend.gate.set()
        while get(port, "/ready")[0] != 200:
            pass


def test_the_busiest_clients_come_first(tmp_path: Path) -> None:
    with shown(tmp_path) as (harness, port):
        for number, count in enumerate((1, 100, 10)):
            harness.client(name=f"client {number}").evaluate(numbered_batch(count), priority="analysis")
        told = document(port)["clients"]
        assert [row["name"] for row in told] == ["client 1", "client 2", "client 0"]
        assert [row["positions"] for row in told] == [100, 10, 1]
        assert {row["class"] for row in told} == {"analysis"}


def test_a_device_that_is_left_out_says_why_and_until_when(tmp_path: Path) -> None:
    with shown(tmp_path, backends=("first", "second")) as (harness, port):
        client = harness.client()
        harness.backends[0].answer = failing
        while harness.service.record.state().in_use["0:first"]:
            client.evaluate(numbered_batch(1))
        told = document(port)
        assert (told["state"], told["ready"]) == ("degraded", True)
        first, second = told["devices"]
        assert "the device fell off the bus" in first["reason"]
        assert (first["in_use"], second["in_use"]) == (False, True)
        assert first["failures"] >= MAX_FAILURES
        assert 0 < first["tried_again_in_s"] <= 30
        assert second["tried_again_in_s"] is None
        assert [run["in_use"] for run in told["networks"][0]["runs"]] == [False, True]


def test_power_and_temperature_are_shown_when_a_driver_has_them(tmp_path: Path) -> None:
    sensors = {"first": Sensors(412.5, 61.0), "second": Sensors(celsius=48.25), "third": None}

    def make(name: str) -> EchoBackend:
        return EchoBackend(sensed=sensors[name])

    with shown(tmp_path, backends=tuple(sensors), make=make) as (harness, port):
        while not harness.service.record.state().device_sensors:
            time.sleep(0.01)
        found = [(device["watts"], device["celsius"]) for device in document(port)["devices"]]
        assert found == [(412.5, 61.0), (None, 48.25), (None, None)]
        told = {"0:first": {"watts": 412.5, "celsius": 61.0}, "1:second": {"celsius": 48.25}}
        assert harness.client().status().metrics["device_sensors"] == told
        scraped = get(port, "/metrics")[2].decode()
        assert 'wavefront_device_power_watts{device="0:first"} 412.5\n' in scraped
        assert 'wavefront_device_temperature_celsius{device="0:first"} 61.0\n' in scraped
        assert 'wavefront_device_temperature_celsius{device="1:second"} 48.25\n' in scraped
        assert 'watts{device="1:second"}' not in scraped
        assert 'celsius{device="2:third"}' not in scraped


def test_it_answers_while_networks_load() -> None:
    with (
        closing(EvaluatorService(Loader(devices("random")), [NetworkToLoad(None)])) as service,
        serve_health("127.0.0.1", 0, service.record) as port,
    ):
        told = json.loads(get(port, "/status")[2])
        jsonschema.validate(told, SCHEMA)
        assert (told["state"], told["ready"], told["networks"]) == ("loading", False, [])
        assert told["devices"] == []
        assert (told["reason"], told["default"]) == ("the networks are being loaded", "")
        assert get(port, "/")[0] == 200


def test_the_page_has_the_last_warnings_of_the_log(tmp_path: Path) -> None:
    log = logging.getLogger("evaluator.test")
    with shown(tmp_path) as (_, port):
        for number in range(25):
            log.warning("warning %d of %s", number, MALICE)
        told = document(port)["warnings"]
        assert len(told) == 20
        assert told[0] == {"time": told[0]["time"], "level": "warning", "message": f"warning 24 of {MALICE}"}
        assert told[0]["time"] >= told[-1]["time"]
    assert not any(type(handler).__name__ == "Warnings" for handler in logging.getLogger().handlers)


def test_a_document_is_put_together_once_for_all_who_look(tmp_path: Path) -> None:
    with shown(tmp_path, kept_s=1000.0) as (_, port):
        times = {json.loads(get(port, "/status")[2])["time"] for _ in range(5)}
    assert len(times) == 1


def test_a_fault_of_the_document_is_logged_and_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(document: StatusDocument) -> dict[str, Any]:
        raise MemoryError

    with shown(tmp_path) as (_, port):
        monkeypatch.setattr(StatusDocument, "get", broken)
        assert get(port, "/status")[0] == 500
        assert get(port, "/live")[0] == 200
    assert "a request by HTTP was not answered" in caplog.text

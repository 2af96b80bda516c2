# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator serve` as a process: embedded and alone, ended by signals, killed, its device lost."""

import contextlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from evaluator.backends import open_backend
from evaluator.backends.common.probe import probe_batch
from evaluator.commands.serve import EXIT_HUNG
from evaluator.devices.running.failover import MAX_FAILURES
from evaluator.network import load_network
from protocol import EvaluatorClient
from protocol.errors import DeviceFailed, Draining, EvaluatorLost
from tests.evaluator.service.echo import WAIT_S
from tests.evaluator.service.plugin import Plugin
from tests.evaluator.service.process import event, free_port, needs_posix, serving, sockets, wait_for_line
from tests.paths import DATA
from tests.programs import started

pytestmark = pytest.mark.integration


def test_embedded_it_ends_with_its_stdin_and_leaves_nothing(environment: dict[str, str]) -> None:
    with serving(environment, "--embedded", "--backend", "random") as process:
        event(process, "bound")
        event(process, "ready")
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None  # or `communicate` would flush it
        assert process.wait(WAIT_S) == 0
    assert sockets(environment) == []


@needs_posix
def test_embedded_it_ends_when_its_parent_is_killed(environment: dict[str, str]) -> None:
    script = (
        "import subprocess, sys, time\n"
        "command = [sys.executable, '-m', 'evaluator', 'serve', '--embedded', '--backend', 'random']\n"
        "subprocess.Popen(command, stdin=subprocess.PIPE)\n"
        "time.sleep(600)"
    )
    with started(sys.executable, "-c", script, env=environment, stderr=subprocess.DEVNULL) as parent:
        child = psutil.Process(event(parent, "bound")["pid"])
        event(parent, "ready")
        parent.kill()
        child.wait(WAIT_S)
    assert sockets(environment) == []


def test_alone_it_says_where_it_listens_and_answers_health_checks(environment: dict[str, str]) -> None:
    port, health = free_port(), free_port()
    flags = ("--backend", "random", "--address", f"tcp://127.0.0.1:{port}", "--metrics-port", str(health))
    with serving(environment, *flags, "--page-host", "evaluator.example") as process:
        assert f" http://127.0.0.1:{health}/\n" in wait_for_line(process, "the page")
        assert f"tcp://127.0.0.1:{port}" in wait_for_line(process, "listening on")
        wait_for_line(process, "ready")
        with EvaluatorClient(f"tcp://127.0.0.1:{port}", timeout=WAIT_S) as client:
            client.evaluate(probe_batch(5))
        for path, text in (
            ("live", "live"),
            ("ready", "ready"),
            ("", "<title>Wavefront evaluator</title>"),
            ("status", '"name": "random"'),
            ("metrics", 'wavefront_positions_total{device="0:random",network="random"} 5.0\n'),
            ("metrics", "process_open_fds"),
        ):
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/{path}", timeout=WAIT_S) as reply:
                assert text in reply.read().decode()
        for host in ("evaluator.example", "elsewhere.example"):
            page = urllib.request.Request(f"http://127.0.0.1:{health}/", headers={"Host": host})
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(page, timeout=WAIT_S):
                assert host == "evaluator.example"


@needs_posix
def test_sigterm_drains(environment: dict[str, str], plugin: Plugin) -> None:
    health = free_port()
    flags = ("--backend", "plugin", "--hang-s", "1000", "--metrics-port", str(health))
    with serving(environment, "--embedded", *flags) as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with (
            EvaluatorClient(address, timeout=WAIT_S) as client,
            EvaluatorClient(address, timeout=WAIT_S) as idle,
        ):
            plugin.hang()
            for _ in range(20):
                client.submit(probe_batch(40))
            client.ping()
            process.send_signal(signal.SIGTERM)
            assert client.receive() is None
            assert client.draining
            status = client.status()
            assert (status.state, status.ready, status.draining) == ("draining", False, True)
            assert "SIGTERM" in status.reason
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(f"http://127.0.0.1:{health}/ready", timeout=WAIT_S)
            with pytest.raises(Draining):
                EvaluatorClient(address, timeout=WAIT_S)
            with pytest.raises(Draining):
                idle.evaluate(probe_batch(1))
            plugin.work()
            for _ in range(20):
                completed = client.receive()
                assert completed is not None
                assert len(completed.result()) == 40
            assert process.wait(WAIT_S) == 0


@contextlib.contextmanager
def terminated(
    environment: dict[str, str], plugin: Plugin, exit_timeout: str
) -> Iterator[tuple[subprocess.Popen[str], EvaluatorClient]]:
    """A process that got SIGTERM while its device hangs in a batch, and the client that waits for it."""
    flags = ("--backend", "plugin", "--hang-s", "1000", "--exit-timeout", exit_timeout)
    with serving(environment, "--embedded", *flags) as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            plugin.hang()
            client.submit(probe_batch(4))
            client.ping()
            process.send_signal(signal.SIGTERM)
            assert client.receive() is None
            yield process, client


@needs_posix
def test_unfinished_requests_fail_when_exit_time_is_over(environment: dict[str, str], plugin: Plugin) -> None:
    with terminated(environment, plugin, "0.05") as (process, client):
        completed = client.receive()
        assert completed is not None
        assert isinstance(completed.error, Draining)
        assert process.wait(WAIT_S) == 0


@needs_posix
def test_a_second_signal_ends_it_at_once(environment: dict[str, str], plugin: Plugin) -> None:
    with terminated(environment, plugin, "1000") as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    assert sockets(environment) == []


@needs_posix
def test_sigterm_ends_one_whose_device_hangs(environment: dict[str, str], plugin: Plugin) -> None:
    flags = ("--embedded", "--backend", "plugin", "--hang-factor", "1", "--hang-s", "0.05")
    with serving(environment, *flags) as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            client.evaluate(probe_batch(4))
            plugin.hang()
            with pytest.raises(DeviceFailed, match="hangs"):
                client.evaluate(probe_batch(4))
            assert client.status().state == "degraded"
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0


def test_onnx_stands_in_for_lost_device_until_it_is_back(environment: dict[str, str], plugin: Plugin) -> None:
    network = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))[0]
    flags = ("--network", str(network), "--backend", "plugin", "--retry-s", "0.05", "--threads", "1")
    with serving(environment, "--embedded", *flags, "--calibration-s", "0.05") as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            assert client.network.backend == "plugin"
            plugin.fail()
            batch = probe_batch(4)
            with open_backend("reference", load_network(network)) as reference:
                wanted = reference.evaluate(batch)
            for _ in range(MAX_FAILURES + 1):
                np.testing.assert_allclose(client.evaluate(batch).logits, wanted.logits, atol=1e-3)
            status = client.status()
            assert (status.state, status.ready) == ("degraded", True)
            assert "fell off the bus" in status.reason
            with EvaluatorClient(address, timeout=WAIT_S) as late:
                assert late.network.backend == "onnx"
            plugin.work()
            while client.status().state != "ready":
                pass
            assert not client.evaluate(batch).logits.any()  # what the plug-in answers


@needs_posix
def test_a_killed_evaluator_is_lost_not_slow(environment: dict[str, str]) -> None:
    with serving(environment, "--embedded", "--backend", "random") as process:
        address = event(process, "bound")["address"]
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            process.send_signal(signal.SIGSTOP)
            client.submit(probe_batch(8))
            process.kill()
            with pytest.raises(EvaluatorLost, match="gone"):
                client.receive()


@needs_posix
def test_exit_when_hung_ends_with_its_own_status(environment: dict[str, str], plugin: Plugin) -> None:
    flags = ("--embedded", "--backend", "plugin", "--hang-factor", "1", "--hang-s", "0.05")
    with serving(environment, *flags, "--retry-s", "0.05", "--exit-when-hung") as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            client.evaluate(probe_batch(4))
            plugin.hang()
            client.submit(probe_batch(4))
            assert process.wait(WAIT_S) == EXIT_HUNG
    assert sockets(environment) == []

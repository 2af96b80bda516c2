"""`python -m evaluator serve` as a process: start, end, being killed, addresses, embedding."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zmq

from evaluator.backends import open_backend
from evaluator.backends.probe import probe_batch
from evaluator.commands.serve import KEPT_DESCRIPTORS
from evaluator.devices.failover import MAX_FAILURES
from evaluator.network import load_network
from evaluator.service.endpoints import AddressError, bind, listening_socket, sweep
from protocol import EvaluatorClient
from protocol.errors import DeviceFailed, Draining, EvaluatorLost, Overloaded
from tests.evaluator.service.plugin import Plugin
from tests.paths import DATA, REPOSITORY

WAIT_S = 60.0

needs_ipc = pytest.mark.skipif(not zmq.has("ipc"), reason="this platform has no ipc")
needs_posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Folders of our own for caches and for sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="wf") as runtime:
        yield {
            **os.environ,
            "XDG_RUNTIME_DIR": "",
            "TMPDIR": runtime,
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "PYTHONPATH": str(REPOSITORY),
        }


@contextmanager
def serving(environment: dict[str, str], *flags: str) -> Iterator[subprocess.Popen[str]]:
    """The process, killed at the end if it is still there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evaluator", "serve", *flags],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def event(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    """The next JSON line of an embedded evaluator, which must be of that name."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    message: dict[str, Any] = json.loads(line)
    assert message["event"] == name, message
    return message


def wait_for_line(process: subprocess.Popen[str], text: str) -> str:
    """The first line on stderr with that text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"ended with status {process.wait(WAIT_S)} without saying {text!r}")


def sockets(environment: dict[str, str]) -> list[Path]:
    """Everything left in the folder for sockets, but for the well-known folder itself."""
    return [
        path for path in Path(environment["TMPDIR"]).rglob("*") if path.parent.name.startswith("wavefront-")
    ]


def free_port() -> int:
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        return socket.bind_to_random_port("tcp://127.0.0.1")


def test_embedded_it_tells_its_address_and_evaluates(environment: dict[str, str]) -> None:
    with serving(environment, "--embedded", "--backend", "random") as process:
        bound = event(process, "bound")
        assert bound["pid"] == process.pid
        with EvaluatorClient(bound["address"], timeout=WAIT_S) as client:
            assert len(client.evaluate(probe_batch(300))) == 300
        event(process, "ready")


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
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "command = [sys.executable, '-m', 'evaluator', 'serve', '--embedded', '--backend', 'random']\n"
            "subprocess.Popen(command, stdin=subprocess.PIPE)\n"
            "time.sleep(600)",
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        bound = event(parent, "bound")
        child = psutil.Process(bound["pid"])
        event(parent, "ready")
    finally:
        parent.kill()
        parent.wait()
    child.wait(WAIT_S)
    parent.communicate()
    assert sockets(environment) == []


@needs_posix
def test_sigterm_ends_it_cleanly(environment: dict[str, str]) -> None:
    with serving(environment, "--embedded", "--backend", "random") as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
            with pytest.raises(EvaluatorLost):
                client.ping()
    assert sockets(environment) == []


@pytest.fixture
def plugin(environment: dict[str, str], tmp_path: Path) -> Plugin:
    """The backend `plugin` in the environment."""
    installed = Plugin(tmp_path / "plugin")
    environment.update(installed.environment)
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path / "plugin")
    return installed


@needs_posix
def test_sigterm_drains(environment: dict[str, str], plugin: Plugin) -> None:
    health = free_port()
    flags = ("--backend", "plugin", "--hang-s", "1000", "--metrics-port", str(health))
    with serving(environment, "--embedded", *flags) as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
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
            plugin.work()
            for _ in range(20):
                completed = client.receive()
                assert completed is not None
                assert len(completed.result()) == 40
            assert process.wait(WAIT_S) == 0


@needs_posix
def test_what_is_not_done_when_the_time_to_exit_is_over_is_answered_with_an_error(
    environment: dict[str, str], plugin: Plugin
) -> None:
    flags = ("--backend", "plugin", "--hang-s", "1000", "--exit-timeout", "0.05")
    with serving(environment, "--embedded", *flags) as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            plugin.hang()
            client.submit(probe_batch(4))
            client.ping()
            process.send_signal(signal.SIGTERM)
            assert client.receive() is None
            completed = client.receive()
            assert completed is not None
            assert isinstance(completed.error, Draining)
            assert process.wait(WAIT_S) == 0


@needs_posix
def test_a_second_signal_ends_it_at_once(environment: dict[str, str], plugin: Plugin) -> None:
    flags = ("--backend", "plugin", "--hang-s", "1000", "--exit-timeout", "1000")
    with serving(environment, "--embedded", *flags) as process:
        address = event(process, "bound")["address"]
        event(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            plugin.hang()
            client.submit(probe_batch(4))
            client.ping()
            process.send_signal(signal.SIGTERM)
            assert client.receive() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
    assert sockets(environment) == []


@needs_posix
@pytest.mark.parametrize("flags", [["--embedded"], ["--address", "tcp://127.0.0.1:0"]])
def test_without_descriptors_for_a_single_client_it_does_not_start(
    environment: dict[str, str], flags: list[str]
) -> None:
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))\n"
        "from evaluator.cli import console; console()"
    )
    command = [sys.executable, "-c", code, "serve", "--backend", "random", *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 2
    assert "the limit of open files is 60" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@needs_posix
def test_without_descriptors_for_more_it_serves_those_it_has(environment: dict[str, str]) -> None:
    """It keeps some for itself: health checks are answered, and there is no accepting without end."""
    port, health = free_port(), free_port()
    address = f"tcp://127.0.0.1:{port}"
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))\n"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            limited + "from evaluator.cli import console; console()",
            *("serve", "--backend", "random", "--address", address, "--metrics-port", str(health)),
        ],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    idle: list[socket.socket] = []
    try:
        wait_for_line(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    idle.append(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            while client.status().metrics["connections"] > 128 - KEPT_DESCRIPTORS:
                pass
            assert psutil.Process(process.pid).num_fds() < 128
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/live", timeout=WAIT_S) as reply:
                assert reply.read() == b"live\n"
            assert len(client.evaluate(probe_batch(8))) == 8
            for connection in idle:
                connection.close()
            while client.status().metrics["connections"] > 1:
                pass
            with EvaluatorClient(address, timeout=WAIT_S) as late:
                assert len(late.evaluate(probe_batch(8))) == 8
    finally:
        process.kill()
        process.communicate()


def test_the_log_can_be_json(environment: dict[str, str]) -> None:
    flags = ("--backend", "random", "--address", f"tcp://127.0.0.1:{free_port()}", "--log-format", "json")
    with serving(environment, *flags) as process:
        assert json.loads(wait_for_line(process, "listening on"))["level"] == "info"


@needs_posix
def test_sighup_reads_the_settings_and_networks_again(environment: dict[str, str], tmp_path: Path) -> None:
    first, second = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))[:2]
    address = f"tcp://127.0.0.1:{free_port()}"
    config = tmp_path / "evaluator.toml"

    def write(networks: list[Path], **settings: object) -> None:
        lines = [f"network = {json.dumps([str(network) for network in networks])}"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        config.write_text("\n".join(lines))

    write([first], max_play_queue=1000)
    flags = ("--config", str(config), "--backend", "random", "--address", address)
    with serving(environment, *flags) as process:
        wait_for_line(process, "ready")
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            before = client.network.name
            write([second, first], max_play_queue=7, threads=3)
            process.send_signal(signal.SIGHUP)
            assert "restart" in wait_for_line(process, "threads")
            assert "7" in wait_for_line(process, "max_play_queue is now")
            wait_for_line(process, "is loaded")
            status = client.status()
            assert [network.name for network in status.networks][1:] == [before]
            assert status.aliases["default"] == status.networks[0].name != before
            with pytest.raises(Overloaded):
                client.evaluate(probe_batch(8))
            assert len(client.evaluate(probe_batch(7))) == 7
            config.write_text("max_play_queue = nonsense")
            process.send_signal(signal.SIGHUP)
            wait_for_line(process, "the settings stay as they are")
            write([second], max_play_queue=1000)
            process.send_signal(signal.SIGHUP)
            wait_for_line(process, f"network {before} is unloaded")
            assert len(client.status().networks) == 1
            process.send_signal(signal.SIGUSR1)
            assert "1 clients" in wait_for_line(process, "ready:")
            assert client.ping() > 0


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


def test_onnx_stands_in_for_a_lost_device_until_it_is_back(
    environment: dict[str, str], plugin: Plugin
) -> None:
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
            with pytest.raises(EvaluatorLost):
                client.reconnect()


@needs_posix
@needs_ipc
def test_the_next_evaluator_sweeps_up_after_a_killed_one(environment: dict[str, str]) -> None:
    with serving(environment, "--embedded", "--backend", "random") as killed:
        event(killed, "bound")
        event(killed, "ready")
    left = sockets(environment)
    assert len(left) == 1
    with serving(environment, "--embedded", "--backend", "random") as process:
        event(process, "bound")
        assert left[0] not in sockets(environment)


def test_a_client_reconnects_to_an_evaluator_started_again(environment: dict[str, str]) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    flags = ("--embedded", "--backend", "random", "--address", address)
    with serving(environment, *flags) as process:
        event(process, "bound")
        client = EvaluatorClient(address, timeout=WAIT_S)
        process.kill()
        with pytest.raises(EvaluatorLost):
            while True:
                client.ping()
    with client, serving(environment, *flags) as process:
        event(process, "bound")
        client.reconnect()
        assert len(client.evaluate(probe_batch(8))) == 8


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(EvaluatorLost, match="no evaluator listens"):
        EvaluatorClient(f"tcp://127.0.0.1:{free_port()}", timeout=WAIT_S)
    with pytest.raises(EvaluatorLost, match="not an address"):
        EvaluatorClient("nonsense")


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
        ):
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/{path}", timeout=WAIT_S) as reply:
                assert text in reply.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{health}/nothing", timeout=WAIT_S)
        for host in ("evaluator.example", "elsewhere.example"):
            page = urllib.request.Request(f"http://127.0.0.1:{health}/", headers={"Host": host})
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(page, timeout=WAIT_S):
                assert host == "evaluator.example"


@needs_ipc
def test_a_live_address_is_not_stolen_and_a_stale_one_replaced(
    environment: dict[str, str], tmp_path: Path
) -> None:
    for address in (f"ipc://{environment['TMPDIR']}/e", f"tcp://127.0.0.1:{free_port()}"):
        flags = ("--backend", "random", "--address", address)
        with serving(environment, *flags) as first:
            wait_for_line(first, "ready")
            with serving(environment, *flags) as second:
                assert "in use" in wait_for_line(second, "error:")
                assert second.wait(WAIT_S) == 1
            with EvaluatorClient(address, timeout=WAIT_S) as client:
                client.ping()
        # Killed: its socket file, if any, is still there.
        with serving(environment, *flags) as third:
            wait_for_line(third, "ready")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--network", "no-such-file.pb.gz"], "no-such-file.pb.gz"),
        (["--backend", "abacus"], "abacus"),
        (["--backend", "random:x"], "name:key=value"),
        (["--threads", "many"], "--threads"),
        (["--max-request", "0"], "max_request is a whole number from 1 to 65,536, not 0"),
        (["--log-level", "loud"], "one of debug"),
        (["--config", "no-such-file.toml"], "no-such-file.toml"),
        (["--address", "udp://127.0.0.1:1"], "tcp://"),
        (["--address", "ipc:///no/such/folder/socket"], "does not exist"),
        (["--address", "tcp://127.0.0.1:99999999"], "tcp://127.0.0.1:99999999"),
        (
            ["--address", "tcp://no.such.host:5577", "--unencrypted"],
            "a host is an IP address of this machine",
        ),
        (["--address", "ipc://"], "names no path"),
        (["--address", f"ipc:///tmp/{'x' * 200}"], "too long"),
        (["--metrics-port", "1", "--metrics-address", ""], "metrics_address is empty"),
    ],
)
def test_what_is_wrong_is_said_once(environment: dict[str, str], flags: list[str], said: str) -> None:
    """Embedded to the engine, which tells the user, else to the user."""
    for embedded in (["--embedded"], []):
        with serving(environment, *embedded, *flags) as process:
            # Its stdin stays open: the end of that would end it, too.
            assert process.wait(WAIT_S) in (1, 2)
            out, err = process.communicate()
            if embedded:
                assert "error" not in err
                assert said in json.loads(out.splitlines()[-1])["message"]
            else:
                assert said in err.splitlines()[-1]
                assert "Traceback" not in err


def test_an_address_needs_a_transport_we_speak() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        with pytest.raises(AddressError):
            bind(router, "inproc://x")
        assert bind(router, "tcp://127.0.0.1:0").rpartition(":")[2] != "0"


@pytest.mark.parametrize("gated", [True, False])
def test_localhost_is_an_address_to_listen_at(gated: bool) -> None:
    if gated:
        made, bound = listening_socket("tcp://localhost:0")
        made.close()
    else:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            bound = bind(router, "tcp://localhost:0")
    assert bound.startswith("tcp://127.0.0.1:")


def test_sweeping_spares_the_living(tmp_path: Path) -> None:
    living, dead = tmp_path / f"embedded-{os.getpid()}-00", tmp_path / f"embedded-{2**22 + 1}-00"
    other = tmp_path / "embedded-notes"
    for folder in (living, dead, other):
        folder.mkdir()
    sweep(tmp_path)
    assert living.exists()
    assert other.exists()
    assert not dead.exists()

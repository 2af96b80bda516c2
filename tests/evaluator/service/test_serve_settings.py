# SPDX-License-Identifier: GPL-3.0-or-later
"""What `python -m evaluator serve` is told: wrong flags, limits of the system, new settings; and its log."""

import contextlib
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from evaluator.backends.common.probe import probe_batch
from evaluator.commands.serve import KEPT_DESCRIPTORS
from protocol import EvaluatorClient
from protocol.errors import Overloaded
from tests.evaluator.service.echo import WAIT_S
from tests.evaluator.service.process import free_port, limited, needs_ipc, needs_posix, serving, wait_for_line
from tests.paths import DATA

pytestmark = pytest.mark.integration

ANYWHERE = ("--address", "tcp://127.0.0.1:0")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--network", "no-such-file.pb.gz"], "no-such-file.pb.gz"),
        (["--backend", "abacus"], "abacus"),
        (["--backend", "random:x"], "name:key=value"),
        (["--max-request", "0"], "max_request is a whole number from 1 to 65,536, not 0"),
        (["--config", "no-such-file.toml"], "no-such-file.toml"),
        (["--address", "udp://127.0.0.1:1"], "tcp://"),
        (["--address", "ipc:///no/such/folder/socket"], "does not exist"),
        (["--address", "tcp://127.0.0.1:99999999"], "tcp://127.0.0.1:99999999"),
        (["--address", "tcp://no.such.host:5577", "--unencrypted"], "a host is an IP address of this"),
        (["--address", "ipc://"], "names no path"),
        (["--address", f"ipc:///tmp/{'x' * 200}"], "too long"),
        (["--metrics-port", "1", "--metrics-address", ""], "metrics_address is empty"),
        ([*ANYWHERE, "--metrics-port", "9", "--metrics-address", "192.0.2.1"], "another --metrics-port or"),
        ([*ANYWHERE, "--metrics-port", "9", "--metrics-address", "no.such.host"], "no such address"),
        (["--address", "tcp://192.0.2.1:5577", "--unencrypted"], "give another --address"),
    ],
)
def test_a_wrong_setting_is_reported_once(environment: dict[str, str], flags: list[str], said: str) -> None:
    """Embedded to the engine, which tells the user, else to the user."""
    kinds = ("no-such-file.pb.gz", "abacus", "max_request", "does not exist")
    for embedded in ([], ["--embedded"])[: 1 + any(kind in said for kind in kinds)]:
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


def test_a_port_in_use_is_an_error(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--backend", "random", "--address", "tcp://127.0.0.1:0", "--metrics-port", str(port))
        with serving(environment, *flags) as process:
            said = wait_for_line(process, "error:")
    assert "another program listens there; give another --metrics-port" in said


@needs_posix
@needs_ipc
def test_service_without_a_socket_folder_names_its_operators(environment: dict[str, str]) -> None:
    folder = Path(environment["TMPDIR"]) / f"wavefront-{os.getuid()}"
    folder.write_text("no folder")
    with serving(environment, "--backend", "random") as process:
        assert str(folder) in wait_for_line(process, "there is no ipc address")


def test_the_log_can_be_json(environment: dict[str, str]) -> None:
    flags = ("--backend", "random", "--address", f"tcp://127.0.0.1:{free_port()}", "--log-format", "json")
    with serving(environment, *flags) as process:
        assert json.loads(wait_for_line(process, "listening on"))["level"] == "info"


@needs_posix
@pytest.mark.parametrize("flags", [["--embedded"], ["--address", "tcp://127.0.0.1:0"]])
def test_it_needs_descriptors_for_a_client(environment: dict[str, str], flags: list[str]) -> None:
    with serving(environment, "--backend", "random", *flags, program=limited(60)) as process:
        assert process.wait(WAIT_S) == 2
        out, err = process.communicate()
    assert "the limit of open files is 60" in out + err
    assert "Traceback" not in err


@needs_posix
def test_without_descriptors_for_more_it_serves_those_it_has(environment: dict[str, str]) -> None:
    """It keeps some for itself: health checks are answered, and there is no accepting without end."""
    port, health = free_port(), free_port()
    address = f"tcp://127.0.0.1:{port}"
    flags = ("--backend", "random", "--address", address, "--metrics-port", str(health))
    idle: list[socket.socket] = []
    with serving(environment, *flags, program=limited(128)) as process:
        assert "raise it (ulimit -n" in wait_for_line(process, "the limit of open files, 128, allows 32 conn")
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
            # What needs a restart is said as long as it is wanted, and no longer.
            write([second, first], max_play_queue=8, threads=3)
            process.send_signal(signal.SIGHUP)
            assert "restart" in wait_for_line(process, "threads")
            wait_for_line(process, "max_play_queue is now 8")
            write([second, first], max_play_queue=7)
            process.send_signal(signal.SIGHUP)
            assert "max_play_queue is now 7" in wait_for_line(process, " is ")
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
def test_backend_does_not_change_the_networks(environment: dict[str, str], tmp_path: Path) -> None:
    """`random` needs no network and `reference` does: until the restart the one that runs decides."""
    config = tmp_path / "evaluator.toml"
    config.write_text('backend = ["reference"]')
    with serving(environment, "--config", str(config), "--address", "tcp://127.0.0.1:0") as process:
        wait_for_line(process, "INFO ready")
        config.write_text('backend = ["random"]')
        process.send_signal(signal.SIGHUP)
        assert "restart" in wait_for_line(process, "backend")
        assert "INFO loading" in wait_for_line(process, "ing "), "the file is looked at again, as always"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=WAIT_S)
        assert "ERROR" not in said

# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGHUP and `reload` at a real process whose network files move, vanish, break and change."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from evaluator.network import load_network
from protocol import EvaluatorClient
from protocol.errors import BadRequest, LoadFailed
from tests.evaluator.service.plugin import Plugin
from tests.evaluator.service.process import serving, wait_for_line
from tests.evaluator.service.test_systemd import told
from tests.paths import DATA

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's"), pytest.mark.integration]

ALL = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))
FORMATS = [int(load_network(path).input_format) for path in ALL]
NETWORKS = [path for path, its in zip(ALL, FORMATS, strict=True) if its == FORMATS[0]]


class Operator:
    """Changes the settings of a service, and the files that they name."""

    def __init__(self, folder: Path, environment: dict[str, str], address: str) -> None:
        self.folder = folder
        self.environment = environment
        self.address = address
        self.config = folder / "evaluator.toml"

    def file(self, name: str, content: Path) -> Path:
        """A network file, put into its place at once."""
        (self.folder / "new").write_bytes(content.read_bytes())
        return (self.folder / "new").rename(self.folder / f"{name}.pb.gz")

    def settings(self, *networks: Path) -> None:
        """What the settings name."""
        self.config.write_text(f"network = {json.dumps([str(path) for path in networks])}")

    @contextmanager
    def serving(self, *flags: str) -> Iterator[subprocess.Popen[str]]:
        """The service, which may not be ready yet."""
        flags = ("--config", str(self.config), "--address", self.address, *flags)
        with serving(self.environment, *flags) as process:
            yield process

    def served(self) -> list[tuple[str, str]]:
        """The networks' names and hashes, the default one first."""
        with EvaluatorClient(self.address, timeout=60.0, handshake=False) as client:
            status = client.status()
        default = status.aliases.get("default")
        return sorted(
            ((network.name, network.content_hash) for network in status.networks),
            key=lambda network: network[0] != default,
        )


@pytest.fixture
def operator(tmp_path: Path, environment: dict[str, str]) -> Operator:
    return Operator(tmp_path, environment, f"ipc://{environment['TMPDIR']}/e")


def named(*networks: tuple[str, Path]) -> list[tuple[str, str]]:
    """What `served` says of these."""
    return [(name, load_network(path).content_hash) for name, path in networks]


def hangs_up(process: subprocess.Popen[str], text: str) -> None:
    """Have the settings read again, and wait for a line of the log."""
    process.send_signal(signal.SIGHUP)
    wait_for_line(process, text)


def test_a_file_that_has_moved_is_the_network_that_it_was(operator: Operator) -> None:
    here, other = operator.file("here", NETWORKS[0]), operator.file("other", NETWORKS[1])
    operator.settings(here, other)
    with operator.serving("--backend", "random") as process:
        wait_for_line(process, "INFO ready")
        there = here.rename(operator.folder / "there.pb.gz")
        operator.settings(there, other)
        hangs_up(process, "network here is loaded")
        assert operator.served() == named(("here", NETWORKS[0]), ("other", NETWORKS[1]))
        operator.file("there", NETWORKS[2])  # The place that is looked at from now on.
        hangs_up(process, "network here is now")
        assert operator.served() == named(("here", NETWORKS[2]), ("other", NETWORKS[1]))


def test_files_of_one_content_are_distinguished_once_they_differ(operator: Operator) -> None:
    first, second = operator.file("first", NETWORKS[0]), operator.file("second", NETWORKS[0])
    operator.settings(first, second)
    with operator.serving("--backend", "random") as process:
        wait_for_line(process, "INFO ready")
        assert operator.served() == named(("first", NETWORKS[0]))
        operator.file("second", NETWORKS[1])
        hangs_up(process, "network second is loaded")
        assert operator.served() == named(("first", NETWORKS[0]), ("second", NETWORKS[1]))


def test_settings_are_followed_once_they_can_be(operator: Operator) -> None:
    before, wanted = operator.file("before", NETWORKS[0]), operator.file("wanted", Path(__file__))
    operator.settings(before)
    with operator.serving("--backend", "random") as process:
        wait_for_line(process, "INFO ready")
        operator.settings(wanted)
        hangs_up(process, "could not be loaded")
        assert operator.served() == named(("before", NETWORKS[0]))
        operator.file("wanted", NETWORKS[1])
        hangs_up(process, "network wanted is loaded")
        assert operator.served() == named(("wanted", NETWORKS[1]))


def test_settings_that_change_while_others_are_followed_win(operator: Operator) -> None:
    networks = [operator.file(f"net{number}", path) for number, path in enumerate(NETWORKS[:3])]
    operator.settings(networks[0])
    with operator.serving("--backend", "random") as process:
        wait_for_line(process, "INFO ready")
        operator.settings(networks[1])
        hangs_up(process, f"loading {networks[1]}")
        operator.settings(networks[0], networks[2])
        hangs_up(process, "network net2 is loaded")
        while len(served := operator.served()) > 2:  # The second one may still be on its way.
            pass
        assert served == named(("net0", NETWORKS[0]), ("net2", NETWORKS[2]))


def test_settings_that_change_while_networks_load_hold_afterwards(operator: Operator, tmp_path: Path) -> None:
    plugin = Plugin(tmp_path / "plugin")
    operator.environment |= plugin.environment
    operator.environment["PYTHONPATH"] += os.pathsep + str(tmp_path / "plugin")
    before, after = operator.file("before", NETWORKS[0]), operator.file("after", NETWORKS[1])
    operator.settings(before)
    plugin.hang()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{operator.environment['TMPDIR']}/notify")
        manager.setblocking(False)
        operator.environment["NOTIFY_SOCKET"] = manager.getsockname()
        with operator.serving("--backend", "plugin", "--no-latency-cache") as process:
            wait_for_line(process, "latency curve")
            operator.settings(after)
            hangs_up(process, "network is now")
            assert operator.served() == []  # It has taken that in, and loads still.
            with pytest.raises(BlockingIOError):
                manager.recv(4096)
            manager.settimeout(60.0)
            plugin.work()
            assert told(manager)["READY"] == "1"
            wait_for_line(process, "network after is loaded")
            assert operator.served() == named(("after", NETWORKS[1]))


def reload_fails(client: EvaluatorClient, *said: str) -> None:
    with pytest.raises(LoadFailed) as failed:
        client.reload()
    for each in said:
        assert each in str(failed.value)


def test_a_file_that_is_gone_keeps_no_other_from_being_reloaded(operator: Operator) -> None:
    names = ("one", "two", "three")
    files = [operator.file(name, path) for name, path in zip(names, NETWORKS, strict=False)]
    operator.settings(*files)
    with operator.serving("--backend", "random") as process:
        wait_for_line(process, "INFO ready")
        with EvaluatorClient(operator.address, timeout=60.0) as client:
            files[0].unlink()
            operator.file("two", NETWORKS[3])
            reload_fails(client, "one.pb.gz")
            files[2].unlink()
            reload_fails(client, "one.pb.gz", "three.pb.gz")
        assert operator.served() == named(("one", NETWORKS[0]), ("two", NETWORKS[3]), ("three", NETWORKS[2]))


@pytest.mark.parametrize("given", [(), ("default", "best")], ids=["alone", "with aliases"])
def test_no_network_has_the_name_of_an_alias(operator: Operator, given: Sequence[str]) -> None:
    operator.settings(operator.file("first", NETWORKS[0]))
    with operator.serving("--backend", "random") as process:
        wait_for_line(process, "INFO ready")
        with EvaluatorClient(operator.address, timeout=60.0) as client:
            for alias in given:
                client.alias(alias, "first")
            for alias in ("default", *given):
                path = operator.file(alias, NETWORKS[1 + (alias == "best")])
                assert client.load(str(path)).name == f"{alias}-2"
            client.alias("default", "default-2")
            with EvaluatorClient(operator.address, timeout=60.0) as other:
                assert other.network.name == "default-2"
            with pytest.raises(BadRequest, match="a network is named"):
                client.alias("default-2", "first")

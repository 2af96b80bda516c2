# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that change a running evaluator, or show who uses it."""

import json
import os
import signal
import tempfile
from pathlib import Path

import pytest

from evaluator import cli
from evaluator.service.connections.access import Access
from protocol.common.keys.clients import AllowedClient, allow
from protocol.common.keys.files import CLIENT_PAIR, CLIENTS
from protocol.common.keys.pairs import make_pair
from tests.evaluator.service.echo import WAIT_S, numbered_batch
from tests.evaluator.service.harness import Harness, running
from tests.evaluator.service.process import free_port, needs_ipc, needs_posix
from tests.programs import EVALUATOR, started


def told(capsys: pytest.CaptureFixture[str], harness: Harness, *command: str) -> str:
    """What a command that succeeds prints."""
    assert cli.main([*command, "--address", harness.address]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], harness: Harness, *command: str) -> str:
    """The reason of a command that fails."""
    assert cli.main([*command, "--address", harness.address]) == 1
    return capsys.readouterr().err


def test_networks_are_named_reloaded_and_unloaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path, networks=2) as harness:
        assert told(capsys, harness, "alias", "default", "echo-2") == "default means echo-2\n"
        assert harness.client().network.name == "echo-2"
        rows = [line.split() for line in told(capsys, harness, "status").splitlines()]
        assert ["echo-2", "default"] in [row[:2] for row in rows]
        assert {row[0] for row in rows if row} >= {"echo", "play", "analysis", "selfplay"}
        assert told(capsys, harness, "reload", "echo") == "echo: unchanged\n"
        assert told(capsys, harness, "unload", "default") == "unloaded default\n"
        assert "last network" in refused(capsys, harness, "unload", "echo")
        assert "no network" in refused(capsys, harness, "alias", "best", "nothing")
        assert "no alias" in refused(capsys, harness, "alias", "best")


@needs_posix
@pytest.mark.parametrize("command", ["status", "clients"])
def test_answer_is_shown_again_until_interrupted(tmp_path: Path, command: str) -> None:
    flags = ["--watch", "0.01", "--json"]
    with (
        running(tmp_path) as harness,
        started(*EVALUATOR, command, "--address", harness.address, *flags) as process,
    ):
        assert process.stdout is not None
        shown = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(WAIT_S) == 0
    assert all(shown)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--address", "tcp://127.0.0.1:99999"], "a port is a number from 1 to 65535, not '99999'"),
        (["--address", "tcp://no.such.host.invalid:5577"], "the host 'no.such.host.invalid' is not found"),
        (["--address", f"tcp://127.0.0.1:{free_port()}"], "is it the --address that `serve` was given there"),
        (["--timeout", "0"], "a number of seconds above 0, not '0'"),
        (["--timeout", "soon"], "a number of seconds above 0, not 'soon'"),
    ],
)
def test_address_error_names_causes(capsys: pytest.CaptureFixture[str], flags: list[str], said: str) -> None:
    try:
        assert cli.main(["status", *flags]) == 1
    except SystemExit as ended:
        assert ended.code == 2
    assert said in capsys.readouterr().err


def test_clients_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path) as harness:
        harness.client(name="the engine").evaluate(numbered_batch(3))
        assert f"{harness.address}: ready" in told(capsys, harness, "status")
        assert json.loads(told(capsys, harness, "status", "--json"))["metrics"]["positions"] == 3
        assert "the engine" in told(capsys, harness, "clients")
        listed = json.loads(told(capsys, harness, "clients", "--json"))
        assert {client["name"]: client["positions"] for client in listed}["the engine"] == 3
        assert "key " not in told(capsys, harness, "clients")


@needs_ipc
def test_local_clients_are_listed_with_their_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as folder, running(tmp_path, address=f"ipc://{folder}/e") as harness:
        monkeypatch.setenv("COLUMNS", "160")
        assert f"process {os.getpid()}, user {os.getuid()}" in told(capsys, harness, "clients")


def test_clients_are_listed_with_their_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = make_pair(tmp_path / CLIENT_PAIR)
    allow(tmp_path / CLIENTS, AllowedClient("laptop", "admin", pair.public))
    with running(tmp_path, access=Access(str(tmp_path), keys_on_loopback=True)) as harness:
        assert "key laptop" in told(capsys, harness, "clients", "--keys", str(tmp_path))


def test_a_service_is_drained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path) as harness:
        assert told(capsys, harness, "drain") == "drained\n"
        harness.thread.join(WAIT_S)
        assert not harness.thread.is_alive()
        assert "no evaluator" in refused(capsys, harness, "drain")

"""The commands that change a running evaluator, or show who uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluator import cli
from evaluator.service.connections.access import Access
from protocol.keys.clients import AllowedClient, allow
from protocol.keys.files import CLIENT_PAIR, CLIENTS
from protocol.keys.pairs import make_pair
from tests.evaluator.service.harness import WAIT_S, Harness, numbered_batch, running


def told(capsys: pytest.CaptureFixture[str], harness: Harness, *command: str) -> str:
    """What a command that succeeds prints."""
    assert cli.main([*command, "--address", harness.address]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], harness: Harness, *command: str) -> str:
    """The reason of a command that fails."""
    assert cli.main([*command, "--address", harness.address]) == 1
    return capsys.readouterr().err


def test_networks_are_renamed_reloaded_and_unloaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path, networks=2) as harness:
        assert told(capsys, harness, "alias", "default", "echo-2") == "default means echo-2\n"
        assert harness.client().network.name == "echo-2"
        status = told(capsys, harness, "status")
        assert "echo-2, default" in status
        assert "\nqueued: echo (play 0, analysis 0, selfplay 0), echo-2 (play 0, " in status
        assert told(capsys, harness, "reload", "echo") == "echo: unchanged\n"
        assert told(capsys, harness, "unload", "default") == "unloaded default\n"
        assert "last network" in refused(capsys, harness, "unload", "echo")
        assert "no network" in refused(capsys, harness, "alias", "best", "nothing")
        assert "no alias" in refused(capsys, harness, "alias", "best")


def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path) as harness:
        assert "missing.pb" in refused(capsys, harness, "load", str(tmp_path / "missing.pb"))


def test_clients_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path) as harness:
        harness.client(name="the engine").evaluate(numbered_batch(3))
        assert "the engine" in told(capsys, harness, "clients")
        listed = json.loads(told(capsys, harness, "clients", "--json"))
        assert {client["name"]: client["positions"] for client in listed}["the engine"] == 3
        assert " with the key of" not in told(capsys, harness, "clients")


def test_clients_are_listed_with_their_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = make_pair(tmp_path / CLIENT_PAIR)
    allow(tmp_path / CLIENTS, AllowedClient("laptop", "admin", pair.public))
    with running(tmp_path, access=Access(str(tmp_path), keys_on_loopback=True)) as harness:
        assert " with the key of laptop since" in told(capsys, harness, "clients", "--keys", str(tmp_path))


def test_a_service_is_drained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path) as harness:
        assert told(capsys, harness, "drain") == "drained\n"
        harness.thread.join(WAIT_S)
        assert not harness.thread.is_alive()
        assert "no evaluator" in refused(capsys, harness, "drain")

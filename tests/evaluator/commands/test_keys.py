# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator keys`."""

import json
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from evaluator import cli
from protocol.common.keys.clients import read_clients
from protocol.common.keys.files import CLIENT_PAIR, CLIENTS, SERVICE_PAIR
from protocol.common.keys.notation import read_key, show_key
from protocol.common.keys.pairs import read_pair


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> "Told":
    return Told(tmp_path / "keys", capsys)


class Told:
    """Runs the command on a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *words: str) -> str:
        """What it prints when it succeeds."""
        assert cli.main(["keys", "--keys", str(self.folder), *words]) == 0
        return self._capsys.readouterr().out

    def refusal(self, *words: str) -> str:
        assert cli.main(["keys", "--keys", str(self.folder), *words]) == 1
        out, err = self._capsys.readouterr()
        assert out == ""
        return err


def test_pairs_are_made_and_their_public_keys_shown(told: Told) -> None:
    assert "keys make service` makes it" in told.refusal("show")
    for whose, file in (("service", SERVICE_PAIR), ("client", CLIENT_PAIR)):
        key = told("make", whose).strip()
        pair = read_pair(told.folder / file)
        assert read_key(key) == pair.public
        assert told("show", whose).strip() == key
        shown = told("show", whose, "--z85").strip()
        assert shown.encode() == zmq.curve_public(z85.encode(pair.secret))
        assert show_key(pair.secret) not in told("list") + told("list", "--json") + key
        assert "--replace makes a new pair" in told.refusal("make", whose)
        assert read_pair(told.folder / file) == pair
        assert told("make", whose, "--replace").strip() != key
    assert told("show") == told("show", "service")
    elsewhere = str(told.folder / "elsewhere")
    assert told("make", "service", "--keys", elsewhere) == told("show", "--keys", elsewhere) != told("show")


def test_clients_are_let_in_and_revoked(told: Told) -> None:
    first, second = "01" * 32, "ab" * 32
    assert "let in, with the right to play. A running service reads" in told("allow", "laptop", first)
    limits = ("--limit", "rate=100", "--limit", "classes=play")
    assert "rate=100" in told("allow", "desk", second, "--admin", *limits)
    assert "rate=x" in told.refusal("allow", "desk", second, "--limit", "rate=x")
    listed = json.loads(told("list", "--json"))
    assert listed["clients"] == [
        {"name": "laptop", "rights": "play", "key": first, "limits": ""},
        {"name": "desk", "rights": "admin", "key": second, "limits": "classes=play rate=100"},
    ]
    assert (listed["service"], listed["client"], listed["services"]) == (None, None, {})
    assert f"lets in desk (admin): {second}" in told("list")
    assert "cuts the client off" in told("revoke", "laptop")
    assert [client.name for client in read_clients(told.folder / CLIENTS).values()] == ["desk"]
    assert "no client 'laptop'; it has: desk" in told.refusal("revoke", "laptop")
    assert "64 hexadecimal digits" in told.refusal("allow", "laptop", "nonsense")
    assert "name of a client" in told.refusal("allow", "two words", first)


def test_services_are_kept_and_forgotten(told: Told) -> None:
    key = "01" * 32
    told("trust", "tcp://gpu:5577", key)
    assert f"knows tcp://gpu:5577: {key}" in told("list")
    assert "tcp://HOST:PORT" in told.refusal("trust", "gpu", key)
    told("forget", "tcp://gpu:5577")
    assert "no key of tcp://gpu:5577" in told.refusal("forget", "tcp://gpu:5577")

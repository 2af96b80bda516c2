# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may talk to an HTTP server."""

from pathlib import Path

import pytest

from protocol.common.http.access import AccessCheck, ListenAddress, check_address, read_address, read_tokens
from protocol.common.settings.spec import SettingsError

TOKEN = "a-token-of-24-characters"


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8765", "127.0.0.1", 8765, True),
        ("localhost:0", "localhost", 0, True),
        ("[::1]:80", "::1", 80, True),
        ("0.0.0.0:8765", "0.0.0.0", 8765, False),
        ("[::]:8765", "::", 8765, False),
        ("analysis.example:1", "analysis.example", 1, False),
    ],
)
def test_addresses(text: str, host: str, port: int, loopback: bool) -> None:
    address = read_address(text)
    assert address == ListenAddress(host, port)
    assert address.is_loopback == loopback


@pytest.mark.parametrize("text", ["", "8765", ":8765", "127.0.0.1", "[::]:", "h:65536", "::1:80", "h:-1"])
def test_address_is_rejected_when_malformed(text: str) -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        read_address(text)


def test_beyond_this_machine_a_token_and_a_word_are_needed() -> None:
    beyond = ListenAddress("0.0.0.0", 1)
    with pytest.raises(SettingsError, match="--token-file"):
        check_address(beyond, has_token=False, unencrypted=True)
    with pytest.raises(SettingsError, match="--unencrypted"):
        check_address(beyond, has_token=True, unencrypted=False)
    check_address(beyond, has_token=True, unencrypted=True)
    check_address(ListenAddress("127.0.0.1", 1), has_token=False, unencrypted=False)


def test_a_token_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert read_tokens(str(file)) == {"": TOKEN}
    file.write_text(f"# ours\nann {TOKEN}1\nbob {TOKEN}2\n")
    assert read_tokens(str(file)) == {"ann": f"{TOKEN}1", "bob": f"{TOKEN}2"}
    file.chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        read_tokens(str(file))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"with spaces in between it",
        b"a b c",
        b"ann short",
        b"a" * 20 + b"\nann " + b"b" * 20,
        b"\xff" * 30,
        b"a" * 513,
    ],
)
def test_token_is_rejected_when_malformed(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(SettingsError, match="--token-file"):
        read_tokens(str(file))
    with pytest.raises(SettingsError, match="cannot read"):
        read_tokens(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": f"Bearer {TOKEN}"}, None),
        ({"authorization": f"bearer  {TOKEN}"}, None),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 403),
        ({"authorization": "Bearer \udcff"}, 403),
        ({"origin": "http://localhost"}, 401),
    ],
)
def test_with_a_token_nobody_comes_in_without_it(headers: dict[str, str], status: int | None) -> None:
    refusal = AccessCheck({"ann": "another-token-of-this", "bob": TOKEN}).refusal(headers)
    assert (refusal and refusal.status) == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"origin": "https://site.example"}, None),
        ({"origin": "https://other.example"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "http://localhost.other.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"host": "127.0.0.1:80"}, None),
        ({"host": "[::1]:80"}, None),
        ({"host": "a.localhost"}, None),
        ({"host": "Chess.Example:80"}, None),
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example"}, 421),
        ({"host": "["}, 421),
        ({"host": "127.0.0.1:80", "origin": "http://127.0.0.1:80"}, None),
        ({"host": "127.0.0.1:80", "origin": "http://127.0.0.1:81"}, 403),
        ({"host": "127.0.0.1:80", "origin": "null"}, 403),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "same-origin"}, None),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, None),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"host": "127.0.0.1:80", "sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}, 403),
    ],
)
def test_request_is_refused_when_another_site_sends_it(headers: dict[str, str], status: int | None) -> None:
    check = AccessCheck(hosts=("chess.example.",), origins=("https://site.example",))
    refusal = check.refusal(headers)
    assert (refusal and refusal.status) == status

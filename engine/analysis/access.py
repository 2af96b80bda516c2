# SPDX-License-Identifier: GPL-3.0-or-later
"""Access control of `wavefront analysis --listen`: addresses, tokens, and origins of web pages."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from protocol.keys.files import read_private
from protocol.keys.notation import KeysError
from protocol.settings.spec import SettingsError, shown

SUBPROTOCOL = "wavefront-analysis"
"""Name of the protocol in `Sec-WebSocket-Protocol`."""

TOKEN_PREFIX = "wavefront-token."
"""Prefix of a token sent as another subprotocol, the only header that a web page can set."""

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,512}")
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address to listen on. port: 0 selects a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_address(text: str) -> ListenAddress:
    """Parse HOST:PORT, with brackets around an IPv6 address. Raises SettingsError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not host or not colon or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise SettingsError(f"--listen is HOST:PORT, such as 127.0.0.1:8765 or [::1]:8765, not {shown(text)}")
    return ListenAddress(host, int(port))


def read_tokens(path: str) -> Mapping[str, str]:
    """Return the tokens of a file by name. It has lines of NAME TOKEN, or one TOKEN, whose name is empty.
    Raises SettingsError, also if other users may read or replace the file."""
    try:
        text = read_private(Path(path))
    except FileNotFoundError as error:
        raise SettingsError(f"--token-file: cannot read {path}: {error.strerror}") from None
    except KeysError as error:
        raise SettingsError(f"--token-file: {error}") from None
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    tokens: dict[str, str] = {}
    for words in lines:
        name, token = words if len(words) == 2 else ("", words[0])
        alone = not name and len(lines) > 1
        if len(words) > 2 or alone or not _TOKEN.fullmatch(token) or (name and not _NAME.fullmatch(name)):
            break
        if name in tokens:
            raise SettingsError(f"--token-file: {path} has the name {name} twice")
        tokens[name] = token
    if not lines or len(tokens) < len(lines):
        raise SettingsError(
            f"--token-file: {path} holds no token: 16 to 512 letters, digits and any of . _ ~ -, alone or in "
            "lines of NAME TOKEN (python3 -c 'import secrets; print(secrets.token_urlsafe(32))' makes one)"
        )
    return tokens


def check_address(address: ListenAddress, *, has_token: bool, unencrypted: bool) -> None:
    """Raise SettingsError if other machines can reach the address without a token, or without the operator's
    consent to unencrypted connections."""
    if address.is_loopback:
        return
    if not has_token:
        raise SettingsError(
            f"--listen {address.host}: other machines reach this address, so that it needs --token-file FILE"
        )
    if not unencrypted:
        raise SettingsError(
            f"--listen {address.host}: what goes over the network is not encrypted, the token included. "
            "Listen on 127.0.0.1 behind a proxy that speaks TLS, or say --unencrypted for a network that you "
            "trust"
        )


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """The check of clients. tokens: by name; without any, programs of this machine are accepted, and web
    pages of other sites are not. origins: accepted web pages besides those of this machine."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    origins: tuple[str, ...] = ()

    def name(self, headers: Mapping[str, str]) -> str | None:
        """Return the name of the token in a client's headers; None without a valid one."""
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        offered = [given.strip()] if scheme.lower() == "bearer" else []
        names = [name.strip() for name in headers.get("Sec-WebSocket-Protocol", "").split(",")]
        offered += [name.removeprefix(TOKEN_PREFIX) for name in names if name.startswith(TOKEN_PREFIX)]
        found = [name for name, token in self.tokens.items() for text in offered if _is_equal(text, token)]
        return found[0] if found else None

    def refusal(self, headers: Mapping[str, str]) -> str:
        """Return why a client with these headers is refused; empty if it is accepted."""
        if self.tokens:
            if self.name(headers) is not None:
                return ""
            return (
                "this service needs a token, as `Authorization: Bearer TOKEN` or as the subprotocol "
                f"{TOKEN_PREFIX}TOKEN"
            )
        origin = headers.get("Origin")
        if origin is None or origin in self.origins or _is_of_this_machine(origin):
            return ""
        return f"pages of {shown(origin)} are not let in; --origin names those that are"


def _is_equal(text: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(text.encode(errors="replace"), token.encode())


def _is_of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
    except ValueError:
        return False
    return ListenAddress(host, 0).is_loopback

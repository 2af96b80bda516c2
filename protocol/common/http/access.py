# SPDX-License-Identifier: GPL-3.0-or-later
"""Access control of HTTP servers: addresses, tokens, host names, and origins of web pages."""

from __future__ import annotations

import hmac
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from protocol.common.keys.files import read_private
from protocol.common.keys.notation import KeysError
from protocol.common.settings.spec import SettingsError, shown

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
class Refusal:
    """Why a request is refused, and the HTTP status that says so."""

    status: HTTPStatus
    reason: str


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """The check of requests.

    tokens: by name. Without any, requests that name this machine are accepted, but not those of other sites.
    origins: accepted web pages besides the server's own. hosts: accepted names besides this machine's.
    setting: name of the setting of hosts.
    """

    tokens: Mapping[str, str] = field(default_factory=dict)
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    setting: str = "--host"

    def name(self, headers: Mapping[str, str]) -> str | None:
        """Return the name of the token in a client's headers (lower-case names); None without a valid one."""
        found = [name for name, token in self.tokens.items() if _is_equal(_offered(headers), token)]
        return found[0] if found else None

    def refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request with these headers is refused; None if it is accepted."""
        if self.tokens:
            if self.name(headers) is not None:
                return None
            if _offered(headers):
                return Refusal(HTTPStatus.FORBIDDEN, "this token is not valid here")
            return Refusal(
                HTTPStatus.UNAUTHORIZED,
                "this service needs a token, as `Authorization: Bearer TOKEN`",
            )
        return self.foreign(headers)

    def foreign(self, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request is refused whose Host or Origin is another site's; None for others.

        A page elsewhere can point its own name here after a browser has opened it (DNS rebinding), and read
        what that browser may read. Its requests have its own name as Host.
        """
        host = headers.get("host", "")
        if not self._may_name(host):
            text = (
                f"{shown(host)} is not a name of this server: ask by address, or add it with {self.setting}"
            )
            return Refusal(HTTPStatus.MISDIRECTED_REQUEST, text)
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if origin is None:
            if site in ("none", "same-origin") or headers.get("sec-fetch-mode") == "navigate":
                return None
        elif origin in self.origins or _is_origin_of(origin, host):
            return None
        return Refusal(
            HTTPStatus.FORBIDDEN,
            f"pages of {shown(origin or site)} are not let in; --origin names those that are",
        )

    def _may_name(self, host: str) -> bool:
        if not host:  # HTTP/1.0; browsers always send the header.
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
            known = {*_own_names(), *(each.lower().rstrip(".") for each in self.hosts)}
            if name in known or name.endswith(".localhost"):
                return True
            ip_address(name)
        except ValueError:
            return False
        return True


@cache
def _own_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    short = name.partition(".")[0]
    return frozenset({"localhost", name, short, f"{short}.local"})


def _offered(headers: Mapping[str, str]) -> str:
    """Return the token in a client's headers, or ""."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _is_equal(text: str, token: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(text.encode(errors="replace"), token.encode())


def _is_origin_of(origin: str, host: str) -> bool:
    """Return True for the origin of pages from this Host."""
    return bool(host) and origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")

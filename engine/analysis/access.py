# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may talk to `wavefront analysis --listen`: addresses, the token, and pages of browsers."""

from __future__ import annotations

import hmac
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from protocol.settings.spec import SettingsError, shown

SUBPROTOCOL = "wavefront-analysis"
"""What the conversation is called in `Sec-WebSocket-Protocol`."""

TOKEN_PREFIX = "wavefront-token."
"""Before the token, as another subprotocol: the only header that a page can choose."""

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,512}")
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen. port: 0 takes a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


def read_address(text: str) -> ListenAddress:
    """HOST:PORT, with brackets around an IPv6 address. Raises SettingsError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not host or not colon or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise SettingsError(f"--listen is HOST:PORT, such as 127.0.0.1:8765 or [::1]:8765, not {shown(text)}")
    return ListenAddress(host, int(port))


def read_tokens(path: str) -> Mapping[str, str]:
    """The tokens in a file, by name: lines of NAME TOKEN, or one TOKEN, whose name is empty. Raises
    SettingsError, also for a file that others may read."""
    try:
        text = Path(path).read_text("utf-8")
        mode = Path(path).stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"--token-file: cannot read {path}: {reason}") from None
    if sys.platform != "win32" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SettingsError(f"--token-file: others may read {path}: chmod 600 {path}")
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
    """Raises SettingsError for an address beyond this machine without a token, or without the word that
    anybody on the way may read along."""
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
    """Who is let in. tokens: by name; none let in any program of this machine, and no page of a foreign site
    that a browser here may show. origins: of the pages that are let in besides those served by this
    machine."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    origins: tuple[str, ...] = ()

    def name(self, headers: Mapping[str, str]) -> str | None:
        """The name of the token that a client with these headers has; None if it has none of them."""
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        offered = [given.strip()] if scheme.lower() == "bearer" else []
        names = [name.strip() for name in headers.get("Sec-WebSocket-Protocol", "").split(",")]
        offered += [name.removeprefix(TOKEN_PREFIX) for name in names if name.startswith(TOKEN_PREFIX)]
        found = [name for name, token in self.tokens.items() for text in offered if _is_equal(text, token)]
        return found[0] if found else None

    def refusal(self, headers: Mapping[str, str]) -> str:
        """Why a client with these headers is not let in; empty if it is."""
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
    """Takes the same time however much of it is right."""
    return hmac.compare_digest(text.encode(errors="replace"), token.encode())


def _is_of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
    except ValueError:
        return False
    return ListenAddress(host, 0).is_loopback

# SPDX-License-Identifier: GPL-3.0-or-later
"""Permissions of clients, by the client's key or by the address at which the service listens.

The client's own address is not used: behind a proxy every client seems to be on this machine.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from enum import Enum
from ipaddress import ip_address

from protocol.common.keys.clients import AllowedClient, Quota, read_clients
from protocol.common.keys.files import CLIENTS, SERVICE_PAIR, keys_folder
from protocol.common.keys.notation import show_key
from protocol.common.keys.pairs import KeyPair, pair_at

REFUSALS_LOGGED_EVERY_S = 1.0

log = logging.getLogger("evaluator.service")


class Domain(Enum):
    """Access control of an address.

    FILES: file permissions of an ipc socket; its clients may administer. PLAIN: none; its clients may
    administer only with plain_admin. KEYS: the list of clients, which contains their permissions.
    """

    FILES = "ipc"
    PLAIN = "tcp"
    KEYS = "keys"


class Access:
    """Admits clients and checks permissions. Belongs to the I/O thread.

    A user is the identity of a connection: the value of a domain without keys, or a public key as text.

    plain_admin: True if clients of PLAIN addresses may administer.
    """

    def __init__(
        self,
        folder: str = "",
        *,
        keys_on_loopback: bool = False,
        unencrypted: bool = False,
        plain_admin: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """folder: of the keys (see keys_folder). keys_on_loopback: require keys at all tcp addresses.
        unencrypted: require no keys at any tcp address. clock: in seconds, for the log."""
        self.plain_admin = plain_admin
        self._administered_at: list[str] = []
        self._folder = folder
        self._keys_on_loopback = keys_on_loopback
        self._unencrypted = unencrypted
        self._pair: KeyPair | None = None
        self._clients: Mapping[bytes, AllowedClient] = {}
        self._refused = 0
        self._clock = clock
        self._next_log = -math.inf

    # -- addresses -------------------------------------------------------------------------------------

    def domain(self, address: str) -> Domain:
        """Return the access control for an address that is about to be bound."""
        if not address.startswith("tcp://"):
            # An abstract socket has no file, so it has no owner.
            return Domain.PLAIN if address.startswith("ipc://@") else Domain.FILES
        local = is_loopback(address)
        if self._keys_on_loopback or not (local or self._unencrypted):
            return Domain.KEYS
        return Domain.PLAIN

    def bound(self, address: str) -> None:
        """Note an address that has been bound."""
        domain = self.domain(address)
        if domain is Domain.FILES:
            self._administered_at.append(address)
        if domain is Domain.PLAIN and address.startswith("tcp://") and not is_loopback(address):
            log.warning(
                "%s is unencrypted and open: anyone who reaches it can use this service, and anyone on the "
                "way can read and change the messages",
                address,
            )

    def pair(self) -> KeyPair:
        """Return the key pair of the service, creating it if missing. From then on clients need keys. Raises
        KeysError."""
        if self._pair is None:
            folder = keys_folder(self._folder)
            self._clients = read_clients(folder / CLIENTS)
            self._pair = pair_at(folder / SERVICE_PAIR)
            if not self._clients:
                log.warning(
                    "no client has a key that is let in yet: wavefront-evaluator keys%s allow NAME KEY",
                    self._keys_flag,
                )
        return self._pair

    @property
    def _keys_flag(self) -> str:
        return f" --keys {self._folder}" if self._folder else ""

    def reload(self) -> None:
        """Reload the list of clients. Raises KeysError; the old list then stays in force."""
        if self._pair is None:
            return
        self._clients = read_clients(keys_folder(self._folder) / CLIENTS)
        count = len(self._clients)
        log.info("%d client%s let in", count, " is" if count == 1 else "s are")

    # -- users -----------------------------------------------------------------------------------------

    def admit(self, domain: str, key: bytes | None) -> str | None:
        """Return the user for a domain and a key; None if the client is not admitted."""
        if domain != Domain.KEYS.value:
            return domain
        if key is not None and key in self._clients:
            return show_key(key)
        self._log_refusal(key)
        return None

    def may_use(self, user: str) -> bool:
        """Return True if an admitted user is still allowed."""
        return user in _KEYLESS or _key(user) in self._clients

    def may_administer(self, user: str) -> bool:
        """Return True if a user may change the service and list other clients."""
        if user in _KEYLESS:
            return user == Domain.FILES.value or self.plain_admin
        client = self._clients.get(_key(user))
        return client is not None and client.is_admin

    def name(self, user: str) -> str:
        """Return the name of a user in the list of clients; empty for a user without a key."""
        client = None if user in _KEYLESS else self._clients.get(_key(user))
        return "" if client is None else client.name

    def quota(self, user: str) -> Quota:
        """Return the limits of a user's key; none for a user without a key."""
        client = None if user in _KEYLESS else self._clients.get(_key(user))
        return Quota() if client is None else client.quota

    def advice(self, user: str) -> str:
        """Return a remedy for a user without the right to administer."""
        name = self.name(user)
        if name:
            allow = f"wavefront-evaluator keys{self._keys_flag} allow {name} {user} --admin"
            return f"the key of {name} is for play only: {allow}"
        where = " or ".join(self._administered_at) or "an ipc address"
        return f"not at an address without keys: connect to {where}, or with a key that has the right"

    def _log_refusal(self, key: bytes | None) -> None:
        """Log a refusal, at most once per second."""
        self._refused += 1
        now = self._clock()
        if now < self._next_log:
            return
        log.warning(
            "a client with the key %s was refused%s",
            show_key(key or b""),
            f", and {self._refused - 1} others before" if self._refused > 1 else "",
        )
        self._refused = 0
        self._next_log = now + REFUSALS_LOGGED_EVERY_S


_KEYLESS = (Domain.FILES.value, Domain.PLAIN.value)


def is_loopback(address: str) -> bool:
    """Return True if only this machine can reach a tcp address directly."""
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _key(user: str) -> bytes:
    try:
        return bytes.fromhex(user)
    except ValueError:
        return b""

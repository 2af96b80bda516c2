# SPDX-License-Identifier: GPL-3.0-or-later
"""What a client needs for a service with keys: the service's public key and a pair of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from protocol.keys.files import CLIENT_PAIR, SERVICES, keys_folder
from protocol.keys.notation import KeysError, split_address
from protocol.keys.pairs import KeyPair, pair_at
from protocol.keys.services import service_key


@dataclass(frozen=True, slots=True)
class Credentials:
    """service: the public key of the service that is meant; nobody else can answer. own: the client's."""

    service: bytes
    own: KeyPair

    def secure(self, socket: zmq.Socket[Any]) -> None:
        """Have a socket speak to this service only, before it connects."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.service)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.own.secret)


def credentials_for(address: str, folder: str | Path = "") -> tuple[str, Credentials | None]:
    """Where to connect for an address, and with which keys: None without encryption.

    The key of the service follows the address after a #, or is known by the file of services in `folder` (see
    keys_folder), where the client's own pair is made if it is missing. Raises KeysError.
    """
    endpoint, key = split_address(address)
    if not endpoint.startswith("tcp://"):
        return endpoint, None
    try:
        place = keys_folder(folder)
    except KeysError:
        if key is None:  # no folder, so no key is known
            return endpoint, None
        raise
    if key is None:
        key = service_key(place / SERVICES, endpoint)
    if key is None:
        return endpoint, None
    return endpoint, Credentials(key, pair_at(place / CLIENT_PAIR))

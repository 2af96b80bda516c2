# SPDX-License-Identifier: GPL-3.0-or-later
"""A client's keys for a service with CURVE: the service's public key and the client's pair."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from protocol.common.keys.files import CLIENT_PAIR, SERVICES, keys_folder
from protocol.common.keys.notation import KeysError, split_address
from protocol.common.keys.pairs import KeyPair, pair_at
from protocol.common.keys.services import service_key


@dataclass(frozen=True, slots=True)
class Credentials:
    """service: the expected public key, which authenticates the service. own: the client's key pair."""

    service: bytes
    own: KeyPair

    def secure(self, socket: zmq.Socket[Any]) -> None:
        """Make a socket accept this service only. Call it before connecting."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.service)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.own.secret)


def credentials_for(address: str, folder: str | Path = "") -> tuple[str, Credentials | None]:
    """Return the endpoint of an address and the keys to use; None without encryption.

    The service's key follows the address after a #, or is in the file of services in `folder` (see
    keys_folder). The client's pair is created there if missing. Raises KeysError.
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

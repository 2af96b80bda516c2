# SPDX-License-Identifier: GPL-3.0-or-later
"""Key pairs: created, stored in files that only their owner may read, never shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.utils import z85

from protocol.common.keys.files import read_private, write_private
from protocol.common.keys.notation import KeysError, read_key, show_key


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public and a secret key, 32 bytes each. Its repr excludes the secret key."""

    public: bytes
    secret: bytes = field(repr=False)


def new_pair() -> KeyPair:
    """Create a pair. Raises KeysError if ZeroMQ was built without encryption."""
    if not zmq.has("curve"):
        raise KeysError("this ZeroMQ was built without encryption (CURVE): install pyzmq from PyPI")
    public, secret = zmq.curve_keypair()
    return KeyPair(bytes(z85.decode(public)), bytes(z85.decode(secret)))


def read_pair(path: Path) -> KeyPair:
    """Return the pair in a file. Lines starting with # are comments; one other line is the secret key.
    Raises KeysError, FileNotFoundError."""
    lines = [line.strip() for line in read_private(path).splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if len(keys) != 1:
        raise KeysError(f"{path}: it holds no secret key; `wavefront-evaluator keys make` makes one")
    try:
        secret = read_key(keys[0])
    except KeysError as error:
        raise KeysError(f"{path}: {error}") from None
    return KeyPair(bytes(z85.decode(zmq.curve_public(z85.encode(secret)))), secret)


def make_pair(path: Path, *, replace: bool = False) -> KeyPair:
    """Create a pair and store it in a file. Raises KeysError.
    replace: overwrite an existing file; otherwise raises FileExistsError."""
    pair = new_pair()
    text = f"# Secret key of Wavefront. Public key: {show_key(pair.public)}\n{show_key(pair.secret)}\n"
    write_private(path, text, replace=replace)
    return pair


def pair_at(path: Path) -> KeyPair:
    """Return the pair in a file, created if missing. Raises KeysError."""
    try:
        return read_pair(path)
    except FileNotFoundError:
        pass
    try:
        return make_pair(path)
    except FileExistsError:  # another process was faster
        return read_pair(path)

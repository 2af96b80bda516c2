# SPDX-License-Identifier: GPL-3.0-or-later
"""Notation of public keys: 64 hex digits, which need no quotes in any shell, file or URL.
A key may follow an address: tcp://gpu.example:5577#KEY."""

from __future__ import annotations

import re

from protocol.common.printing import ReportedError

KEY_BYTES = 32

_HEX = re.compile(r"[0-9a-fA-F]{64}")
_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


class KeysError(ReportedError, ValueError):
    """A key or a file of keys is invalid. The message gives cause and remedy."""


def show_key(key: bytes) -> str:
    """Return a key as text."""
    return key.hex()


def read_key(text: str) -> bytes:
    """Return the 32 bytes of a key. text: hex digits, or Z85 as other ZeroMQ programs write it.
    Raises KeysError."""
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if _Z85.fullmatch(text):
        from zmq.utils.z85 import decode

        try:
            key = bytes(decode(text))
        except Exception:  # struct.error or OverflowError: five characters beyond 32 bits
            key = b""
        if len(key) == KEY_BYTES:
            return key
    # The text is not shown, because it may be a secret.
    raise KeysError(
        f"a key is 64 hexadecimal digits (or Z85, 40 characters); this has {len(text)} characters"
    )


def split_address(address: str) -> tuple[str, bytes | None]:
    """Return an address without the key that may follow it, and that key. Raises KeysError.

    Only tcp addresses have keys. In other addresses # may be part of a path.
    """
    endpoint, mark, text = address.partition("#")
    if not mark or not address.startswith("tcp://"):
        return address, None
    try:
        return endpoint, read_key(text)
    except KeysError as error:
        raise KeysError(f"{endpoint}#…: {error}") from None

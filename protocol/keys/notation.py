# SPDX-License-Identifier: GPL-3.0-or-later
"""How public keys are written: 64 hexadecimal digits, which need no quotes in any shell, file or URL; and
after an address, as in tcp://gpu.example:5577#KEY."""

from __future__ import annotations

import re

KEY_BYTES = 32

_HEX = re.compile(r"[0-9a-fA-F]{64}")
_Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


class KeysError(ValueError):
    """A key, or a file of keys, that cannot be used. The message says why and what to do."""


def show_key(key: bytes) -> str:
    """A key as text."""
    return key.hex()


def read_key(text: str) -> bytes:
    """A key of 32 bytes from its text, which may also be Z85, as other programs with ZeroMQ write it. Raises
    KeysError."""
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
    # Not shown: it may be a secret that was taken for something else.
    raise KeysError(
        f"a key is 64 hexadecimal digits (or Z85, 40 characters); this has {len(text)} characters"
    )


def split_address(address: str) -> tuple[str, bytes | None]:
    """Return an address without the key that may follow it, and that key. Raises KeysError.

    Only tcp addresses have keys. Of others a # is a part: folders may have it in their names.
    """
    endpoint, mark, text = address.partition("#")
    if not mark or not address.startswith("tcp://"):
        return address, None
    try:
        return endpoint, read_key(text)
    except KeysError as error:
        raise KeysError(f"{endpoint}#…: {error}") from None

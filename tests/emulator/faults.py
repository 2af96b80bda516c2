# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults in machine code: instructions of a code object replaced by `s_nop`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from tests.emulator.disassembly import disassemble

_LOAD = 1
_NOP = struct.pack("<I", 0xBF800000)


def places(code: bytes, pattern: str) -> list[int]:
    """Return the addresses of the instructions whose text matches a pattern."""
    texts = disassemble(code)
    assert texts is not None
    return [address for address, text in texts.items() if re.match(pattern, text)]


def without(code: bytes, addresses: Iterable[int]) -> bytes:
    """Return the code object with `s_nop` in place of these instructions of 4 bytes."""
    changed = bytearray(code)
    segments_at, segment_count = struct.unpack_from("<Q", code, 32)[0], struct.unpack_from("<H", code, 56)[0]
    for address in addresses:
        for i in range(segment_count):
            kind, _, offset, start, _, size = struct.unpack_from("<IIQQQQ", code, segments_at + 56 * i)
            if kind == _LOAD and start <= address < start + size:
                changed[offset + address - start : offset + address - start + 4] = _NOP
    return bytes(changed)

# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a launch for races in shared memory and for missing waits.

The result does not depend on the order in which the waves of a block run. Not covered: global memory, races
between blocks, and operations that the emulator refuses (flat, atomics). races.h explains the method.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from tests.emulator.disassembly import disassemble
from tests.emulator.effects import Effects, access_bytes, effects_of, register_name

_LIMITS = {"cdna": (63, 15, 15), "rdna3": (63, 63, 63), "rdna4": (63, 63, 31)}
"""How many operations the counters can count: vector, shared and scalar memory."""

EARLY_USE, RACE = 16, 17
_SEVERAL = 255


class _Block(ctypes.Structure):
    _fields_ = (
        ("shadow", ctypes.c_void_p),
        ("granules", ctypes.c_uint64),
        ("shift", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("limits", ctypes.c_uint32 * 3),
        ("found", ctypes.c_uint32),
        ("origin", ctypes.c_uint32),
        ("place", ctypes.c_uint32),
    )


class Listing:
    """The instructions of a code object. smallest: bytes of the smallest access to shared memory."""

    def __init__(self, texts: dict[int, str], family: str) -> None:
        self._texts = texts
        self._family = family
        self.smallest = min({access_bytes(text) for text in texts.values()} - {0}, default=4)

    def effects(self, address: int) -> Effects:
        """Of the instruction at an address of the code object. Raises EffectsError."""
        return _effects(self._texts[address], self._family)

    def text(self, address: int) -> str:
        return " ".join(self._texts[address].split())


_effects = cache(effects_of)


def listing(code: bytes, family: str) -> Listing | None:
    """Return a code object's instructions; None if no disassembler knows its target."""
    texts = disassemble(code)
    return None if texts is None else Listing(texts, family)


class RaceCheck:
    """The state of one launch: shadow memory, and what each wave has outstanding."""

    def __init__(
        self, library: ctypes.CDLL, listed: Listing, family: str, lanes: int, waves: int, shared_bytes: int
    ) -> None:
        self._library = library
        self._listing = listed
        shift = min(listed.smallest, 4).bit_length() - 1
        self._shadow = np.zeros(((shared_bytes >> shift) + 1, 2), np.uint32)
        self.block = _Block(self._shadow.ctypes.data, shared_bytes >> shift, shift, lanes, _LIMITS[family])
        library.wave_bytes.restype = ctypes.c_uint64
        self.waves = [np.zeros(int(library.wave_bytes()) // 8 + 1, np.uint64) for _ in range(waves)]
        self._epoch = 1
        self._barriers = 0

    def start_block(self) -> None:
        """Forget what the waves of the last block had outstanding."""
        self._epoch += self._barriers + 1
        self._barriers = 0
        for number, wave in enumerate(self.waves):
            self._library.begin_wave(ctypes.c_void_p(wave.ctypes.data), number + 1, self._epoch)

    def count_barrier(self) -> None:
        """Count a wave's stop at a barrier; the sum is at least the number of barriers."""
        self._barriers += 1

    def fault(self, kind: int, wave: int, address: int) -> str:
        """Describe what was found before the instruction at an address of the code object."""
        block, listed = self.block, self._listing
        at = 4 * block.place
        text = f"wave {wave} at {at:#x}: `{listed.text(at)}`"
        if kind == EARLY_USE:
            load = f"`{listed.text(4 * block.origin)}` at {4 * block.origin:#x}"
            return f"{text} uses {register_name(block.found)} before a wait for {load}"
        other = "several waves" if block.origin == _SEVERAL else f"wave {block.origin}"
        late = "" if at == address else ", not completed by a wait before the barrier,"
        return f"{text}{late} races with {other} for byte {block.found} of shared memory"

# SPDX-License-Identifier: GPL-3.0-or-later
"""What an instruction does to registers, counters and shared memory, read from its disassembled text.

Counters: AMD's ISA guides of CDNA 3, RDNA 3 and RDNA 4, chapter "Data dependency resolution" or "Dependency
checking"; the LLVM guide "User Guide for AMDGPU Backend", section "Memory Model".
"""

from __future__ import annotations

import ctypes
import re

VECTOR, SHARED, SCALAR = range(3)
KINDS = 3
_NO_KIND = 255
READS, WRITES = 1, 2
_ARRIVES, _PASSES = 1, 2
_WORDS = 10
FIRST_SUM, FIRST_SCALAR = 256, 512
_VCC = FIRST_SCALAR + 106
_MODE_AND_TIMING = ("s_waitcnt_depctr", "s_waitcnt_vscnt", "s_wait_storecnt", "s_wait_alu", "s_wait_idle")
"""Waits that no register and no shared memory depends on."""

_REGISTERS = re.compile(r"\b([vas])(?:(\d+)|\[(\d+):(\d+)\])(?!\w)|\b(vcc)(_lo|_hi)?\b")
_UPPER_HALF = re.compile(r"\bv(\d+)/\*Invalid register[^*]*\*/")
"""How LLVM 19 prints the upper half of a register on RDNA: with 128 added to its number."""

_COUNTS = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")
_SIZE = re.compile(r"_[bui](8|16|32|64|96|128)(?:_|$)")
_OFFSET = re.compile(r"offset([01]?):(\d+)")
_FIRST = {"v": 0, "a": FIRST_SUM, "s": FIRST_SCALAR}


class EffectsError(Exception):
    """An instruction whose effects are not known here."""


class Effects(ctypes.Structure):
    """See races.h."""

    _fields_ = (
        ("used", ctypes.c_uint64 * _WORDS),
        ("loaded", ctypes.c_uint64 * _WORDS),
        ("waits", ctypes.c_int16 * KINDS),
        ("kind", ctypes.c_uint8),
        ("barrier", ctypes.c_uint8),
        ("access", ctypes.c_uint8),
        ("address", ctypes.c_uint8),
        ("size", ctypes.c_uint8),
        ("offset_count", ctypes.c_uint8),
        ("offsets", ctypes.c_uint32 * 2),
    )


def effects_of(text: str, family: str) -> Effects:
    """Return the effects of an instruction. family: cdna, rdna3 or rdna4. Raises EffectsError."""
    text = _UPPER_HALF.sub(lambda upper: f"v{int(upper[1]) - 128}", text)
    name, _, operands = text.partition(" ")
    effects = Effects(kind=_NO_KIND, waits=(-1, -1, -1))
    first, _, others = operands.partition(",")
    loads = False
    if name.startswith("s_wait"):
        _read_waits(effects, name, operands)
    elif name.startswith("s_barrier"):
        if name not in ("s_barrier", "s_barrier_signal", "s_barrier_wait"):
            raise EffectsError(f"unknown barrier: {text}")
        effects.barrier = (_ARRIVES if name != "s_barrier_wait" else 0) | (
            _PASSES if name != "s_barrier_signal" else 0
        )
    elif name.startswith(("s_load_", "s_buffer_load_")):
        effects.kind, loads = SCALAR, True
    elif name.startswith("ds_"):
        effects.kind = SHARED
        loads = _read_shared_access(effects, name, operands)
    elif name.startswith(("global_", "buffer_")):
        loads = "_load_" in name
        if (not loads and "_store_" not in name) or re.search(r"\blds\b", text.replace("_", " ")):
            raise EffectsError(f"unknown memory operation: {text}")
        # From RDNA on a counter that nothing here depends on counts stores.
        if loads or family == "cdna":
            effects.kind = VECTOR
    elif name.startswith(("flat_", "scratch_", "image_", "tbuffer_")):
        raise EffectsError(f"unknown memory operation: {text}")
    if loads:
        _set(effects.loaded, first)
        # RDNA writes the half alone. CDNA keeps the other half, which an earlier load may still write.
        _set(effects.used, operands if "_d16" in name and family == "cdna" else others)
    else:
        _set(effects.used, operands)
        if "vcc" in name:
            _set(effects.used, "vcc")
    return effects


def register_name(number: int) -> str:
    """Return the name of a register's bit in `used`, such as v12."""
    kind = "v" if number < FIRST_SUM else "a" if number < FIRST_SCALAR else "s"
    return f"{kind}{number - _FIRST[kind]}"


def access_bytes(text: str) -> int:
    """Return the bytes of a lane's access to shared memory; 0 for other instructions."""
    found = _SIZE.search(text.partition(" ")[0]) if text.startswith("ds_") else None
    return int(found[1]) // 8 if found else 0


def _read_waits(effects: Effects, name: str, operands: str) -> None:
    if name == "s_waitcnt":
        for counter, count in _COUNTS.findall(operands):
            for kind in {"vmcnt": (VECTOR,), "lgkmcnt": (SHARED, SCALAR), "expcnt": ()}[counter]:
                effects.waits[kind] = int(count)
        if not _COUNTS.search(operands):
            raise EffectsError(f"unknown wait: {name} {operands}")
        return
    if name in _MODE_AND_TIMING:
        return
    count = int(operands, 0)
    both = name.partition("_dscnt")
    if both[1] and both[0] in ("s_wait_loadcnt", "s_wait_storecnt"):
        effects.waits[SHARED] = count & 63
        if both[0] == "s_wait_loadcnt":
            effects.waits[VECTOR] = count >> 8 & 63
    elif name in _COUNTERS:
        effects.waits[_COUNTERS[name]] = count
    else:
        raise EffectsError(f"unknown wait: {name} {operands}")


_COUNTERS = {"s_wait_loadcnt": VECTOR, "s_wait_dscnt": SHARED, "s_wait_kmcnt": SCALAR}


def _read_shared_access(effects: Effects, name: str, operands: str) -> bool:
    """Return whether it loads."""
    if "permute" in name or "swizzle" in name:  # through the unit, but not through its memory
        return True
    loads = name.startswith(("ds_read", "ds_load"))
    if not loads and not name.startswith(("ds_write", "ds_store")):
        raise EffectsError(f"unknown access to shared memory: {name}")
    registers = operands.split(",")
    address = re.fullmatch(r"v(\d+)", registers[1 if loads else 0].split()[0])
    size = access_bytes(name)
    if address is None or not size:
        raise EffectsError(f"unknown access to shared memory: {name} {operands}")
    effects.access, effects.address, effects.size = READS if loads else WRITES, int(address[1]), size
    offsets = {which: int(value) for which, value in _OFFSET.findall(operands)}
    if "2addr" in name or name.startswith(("ds_read2", "ds_write2")):
        stride = size * (64 if "st64" in name or "stride64" in name else 1)
        effects.offset_count = 2
        effects.offsets[0], effects.offsets[1] = (offsets.get(which, 0) * stride for which in "01")
    else:
        effects.offset_count = 1
        effects.offsets[0] = offsets.get("", 0)
    return loads


def _set(bits: ctypes.Array[ctypes.c_uint64], operands: str) -> None:
    for kind, single, low, high, vcc, half in _REGISTERS.findall(operands):
        if vcc:
            numbers = {"": range(_VCC, _VCC + 2), "_lo": (_VCC,), "_hi": (_VCC + 1,)}[half]
        else:
            first, last = (int(single), int(single)) if single else (int(low), int(high))
            numbers = range(_FIRST[kind] + first, _FIRST[kind] + last + 1)
        for number in numbers:
            bits[number // 64] |= 1 << number % 64

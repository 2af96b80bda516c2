# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD code objects: the ELF file that hipRTC and clang make, put into memory as the runtime would put it.

Formats: the LLVM guide "User Guide for AMDGPU Backend", sections "ELF Code Object" (e_flags, note records,
segments), "Code Object V5 Metadata" and "Kernel Descriptor".
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass
from typing import Any

import msgpack

_MACHINES = {
    0x2F: "gfx906",
    0x30: "gfx908",
    0x36: "gfx1030",
    0x3F: "gfx90a",
    0x41: "gfx1100",
    0x48: "gfx1200",
    0x4A: "gfx1151",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
}
"""EF_AMDGPU_MACH, the low byte of e_flags."""

_LOAD, _NOTE, _DYNAMIC_SYMBOLS, _RELOCATIONS = 1, 7, 11, 4
_METADATA_NOTE = 32


class CodeObjectError(Exception):
    """Bytes that are no code object, or one that uses something that is not supported here."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel in memory.

    entry: address of its first instruction. shared_bytes: static LDS. argument_bytes: of its argument block,
    whose address goes into the SGPR pair argument_pointer. block_ids: which of the block's x, y and z are
    wanted in the SGPRs from first_block_id on.
    """

    name: str
    entry: int
    max_threads: int
    shared_bytes: int
    argument_bytes: int
    argument_pointer: int
    first_block_id: int
    block_ids: tuple[bool, bool, bool]


def target_of(code: bytes) -> str:
    """The gfx name that code was compiled for."""
    if code[:4] != b"\x7fELF" or len(code) < 64:
        raise CodeObjectError("not an ELF file (a bundle of several targets is not supported)")
    machine = struct.unpack_from("<I", code, 48)[0] & 0xFF
    return _MACHINES.get(machine, f"machine {machine:#x}")


class CodeObject:
    """target: its gfx name. base, size: where its segments lie in this process."""

    def __init__(self, code: bytes) -> None:
        self.target = target_of(code)
        segments_at, sections_at = struct.unpack_from("<QQ", code, 32)
        _, segment_count, _, section_count = struct.unpack_from("<HHHH", code, 54)
        segments = [struct.unpack_from("<IIQQQQQQ", code, segments_at + 56 * i) for i in range(segment_count)]
        sections = [
            struct.unpack_from("<IIQQQQIIQQ", code, sections_at + 64 * i) for i in range(section_count)
        ]
        loaded = [segment for segment in segments if segment[0] == _LOAD]
        self.size = max(address + size for _, _, _, address, _, _, size, _ in loaded)
        self._memory = mmap.mmap(-1, self.size + 4096)  # page-aligned, as the segments must be
        for _, _, offset, address, _, size, _, _ in loaded:
            self._memory[address : address + size] = code[offset : offset + size]
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

        symbols: dict[str, int] = {}
        metadata: dict[str, Any] = {}
        for section in sections:
            kind, offset, size, link = section[1], section[4], section[5], section[6]
            if kind == _RELOCATIONS and size:
                raise CodeObjectError("relocations are not supported")
            if kind == _DYNAMIC_SYMBOLS:
                names = code[sections[link][4] :]
                for at in range(offset, offset + size, 24):
                    name, value = struct.unpack_from("<I4xQ", code, at)
                    symbols[names[name : names.index(b"\0", name)].decode()] = value
            if kind == _NOTE:
                name_size, content_size, note = struct.unpack_from("<III", code, offset)
                if note == _METADATA_NOTE:
                    start = offset + 12 + (name_size + 3) // 4 * 4
                    metadata = msgpack.unpackb(code[start : start + content_size])
        self.kernels = {
            each[".name"]: self._kernel(each, symbols[each[".symbol"]]) for each in metadata["amdhsa.kernels"]
        }

    def _kernel(self, metadata: dict[str, Any], descriptor: int) -> Kernel:
        name = metadata[".name"]
        shared_bytes, scratch_bytes, argument_bytes, entry = struct.unpack_from(
            "<III4xq", self._memory, descriptor
        )
        resources, properties, preloaded = struct.unpack_from("<IHH", self._memory, descriptor + 52)
        kinds = [each[".value_kind"] for each in metadata.get(".args", ())]
        hidden = [kind for kind in kinds if kind.startswith("hidden_")]
        # Of what a kernel can ask to find in its first registers, ours use the argument block only; some
        # targets put a descriptor of the (unused) scratch memory before it.
        if hidden or preloaded or scratch_bytes or properties & 0b111_0110:
            raise CodeObjectError(
                f"{name} uses something that is not supported here: hidden arguments {hidden}, "
                f"{scratch_bytes} bytes of scratch, {preloaded:#x} preloaded, properties {properties:#x}"
            )
        return Kernel(
            name,
            self.base + descriptor + entry,
            metadata[".max_flat_workgroup_size"],
            shared_bytes,
            argument_bytes,
            argument_pointer=4 if properties & 1 else 0,
            first_block_id=resources >> 1 & 31,
            block_ids=(bool(resources & 1 << 7), bool(resources & 1 << 8), bool(resources & 1 << 9)),
        )

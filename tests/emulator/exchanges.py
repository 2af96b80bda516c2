# SPDX-License-Identifier: GPL-3.0-or-later
"""Exchanges between a wave's lanes that the emulator lacks or computes wrongly: `ds_swizzle_b32`,
`v_permlane16_b32` and `v_permlanex16_b32`.

Source: AMD's ISA guides of CDNA 3, RDNA 3 and RDNA 4, the instructions' pseudocode.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

SWIZZLES = ("DS_SWIZZLE_B32",)
PERMUTATIONS = ("V_PERMLANE16_B32", "V_PERMLANEX16_B32")

_ROTATE, _FFT = 0xC000, 0xE000
_QUADS = 0x8000

_FETCH_INACTIVE, _BOUND_CONTROL = 1, 2
"""Bits of a permutation's op_sel."""


def add_exchanges(emulator: ModuleType) -> None:
    """Compile these instructions here and leave all others to the emulator."""
    forms = ((emulator.ir3, emulator.ir4, emulator.irc), "DS", SWIZZLES, _swizzle)
    others = ((emulator.ir3, emulator.ir4), "VOP3", PERMUTATIONS, _permute)
    for families, form, names, own in (forms, others):
        for family in families:
            _handle(emulator, getattr(family, form), names, own)


def _handle(
    emulator: ModuleType, form: type, names: tuple[str, ...], own: Callable[[ModuleType, Any, Any], Any]
) -> None:
    original = emulator._INST_HANDLERS[form]

    def compile_exchange(instruction: Any, context: Any) -> Any:
        if emulator._op_name(instruction) in names:
            return own(emulator, instruction, context)
        return original(instruction, context)

    emulator._INST_HANDLERS[form] = compile_exchange


def _swizzle(emulator: ModuleType, instruction: Any, context: Any) -> Any:
    """Lanes read within their half of a wave of 64. An inactive lane gives 0."""
    fields = type(instruction)
    offset = int(instruction.offset0) | int(instruction.offset1) << 8
    lanes = _copied(emulator, context, context.inst_field(fields.addr))
    active, lane = context.rexec(), context.range()
    if offset >= _FFT:
        raise NotImplementedError(f"ds_swizzle_b32 with offset {offset:#x}: decomposition of an FFT")
    if offset >= _ROTATE:
        kept, distance = offset & 31, offset >> 5 & 31
        turned = lane + (-distance if offset & 1 << 10 else distance)
        source = (lane & 32) | (lane & kept) | (turned & (31 ^ kept))
    elif offset >= _QUADS:
        # Two bits for each lane of a quad.
        choice = lane.const_like(offset & 255) >> ((lane & 3) * 2)
        source = (lane & ~3) | (choice & 3)
    else:
        source = (lane & 32) | (((lane & 31 & offset) | (offset >> 5 & 31)) ^ (offset >> 10 & 31))
    value = emulator._lane_active(active, source).where(lanes.index(source), emulator._c(0))
    return _written(emulator, context, context.inst_field(fields.vdst), lane, value, active)


def _permute(emulator: ModuleType, instruction: Any, context: Any) -> Any:
    """Lanes read within their row of 16 or, with x, within the other row of the pair. Two scalars hold four
    bits for each lane of a row."""
    fields, constant = type(instruction), emulator._c
    literal = context.optional_field(instruction, "literal")
    lanes = _copied(emulator, context, context.inst_field(fields.src0) - constant(256))
    first, second = (
        context.rsrc_dyn(context.inst_field(field), None, literal=literal)
        for field in (fields.src1, fields.src2)
    )
    active, lane = context.rexec(), context.range()
    register = context.inst_field(fields.vdst)
    choices = (lane & 8).ne(0).where(second, first)
    choice = choices >> ((lane & 7) * 4).cast(choices.dtype) & constant(15)
    row = (lane & ~15) ^ (16 if "LANEX" in emulator._op_name(instruction) else 0)
    source = row | choice.cast(lane.dtype)
    value, controls = lanes.index(source), emulator._iattr(instruction, "opsel") or 0
    if not controls & _FETCH_INACTIVE:
        kept = constant(0) if controls & _BOUND_CONTROL else context.rvgpr_dyn(register, lane)
        value = emulator._lane_active(active, source).where(value, kept)
    return _written(emulator, context, register, lane, value, active)


def _copied(emulator: ModuleType, context: Any, register: Any) -> Any:
    """A register's lanes before the instruction writes any, as it may write the register that it reads."""
    lane, size = context.range(), (context.wave_size,)
    copy = emulator.UOp.placeholder(size, emulator.dtypes.uint32, slot=0, addrspace=emulator.AddrSpace.LOCAL)
    return copy.after(copy.index(lane).store(context.rvgpr_dyn(register, lane)).end(lane))


def _written(emulator: ModuleType, context: Any, register: Any, lane: Any, value: Any, active: Any) -> Any:
    written = context.wvgpr_dyn(register, lane, value, active)
    return emulator.UOp.sink(written.end(lane), *context.inc_pc())

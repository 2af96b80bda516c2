"""What the emulator gets wrong and our kernels need, put right in the running process."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

COMMIT = "a9069c177a9da9cca18593edf55acd2e6073cca6"
"""Of tinygrad: what these tests were written for."""

_HALF_LOADS = {
    "DS_LOAD_U16_D16": 0,
    "DS_LOAD_U16_D16_HI": 16,
    "DS_READ_U16_D16": 0,
    "DS_READ_U16_D16_HI": 16,
}
"""Loads of 16 bits from shared memory into half a register, and where that half begins."""


_WMMA_SUMS = "mat_c = [ctx.rvgpr_dyn(src2_r + _c(vgpr), UOp.const(lane, dtypes.int)).bitcast(out_dt)"
_REPAIRED_WMMA_SUMS = """src2 = ctx.inst_field(type(inst).src2)
    in_registers = src2 >= _c(256)
    constant = ctx.rsgpr_dyn(src2, in_registers.ne(True))
    mat_c = [in_registers.where(ctx.rvgpr_dyn(src2_r + _c(vgpr), UOp.const(lane, dtypes.int), in_registers),
                                constant).bitcast(out_dt)"""


def repair(emulator: ModuleType) -> None:
    """Half loads: the emulator writes the whole register. WMMA whose sums begin with a constant: it takes the
    constant's number, 128 for zero, for a register's. Raises RuntimeError where the emulator is not the one
    that this was written for."""
    _rewrite(emulator, "_compile_wmma", _WMMA_SUMS, _REPAIRED_WMMA_SUMS)
    for form in (emulator.ir3.DS, emulator.ir4.DS, emulator.irc.DS):
        original = emulator._INST_HANDLERS[form]

        def compile_shared(instruction: Any, context: Any, original: Any = original) -> Any:
            shift = _HALF_LOADS.get(emulator._op_name(instruction))
            if shift is None:
                return original(instruction, context)
            return _load_half(emulator, instruction, context, shift)

        emulator._INST_HANDLERS[form] = compile_shared


def _rewrite(emulator: ModuleType, function: str, old: str, new: str) -> None:
    text = inspect.getsource(getattr(emulator, function))
    if text.count(old) != 1:
        raise RuntimeError(
            f"{function} of this tinygrad is not as expected; the tests were written for commit {COMMIT}"
        )
    exec(compile(text.replace(old, new), f"{emulator.__file__}, repaired", "exec"), vars(emulator))


def _load_half(emulator: ModuleType, instruction: Any, context: Any, shift: int) -> Any:
    fields, constant = type(instruction), emulator._c
    active, lane = context.rexec(), context.range()
    offset = context.inst_field(fields.offset1) << constant(8) | context.inst_field(fields.offset0)
    address = context.rvgpr_dyn(context.inst_field(fields.addr), lane) + offset
    word_index = (address >> constant(2)).valid(emulator._lane_active(active, lane))
    word = context.lds.index(word_index).load()
    half = (word >> ((address & constant(2)) << constant(3))) & constant(0xFFFF)
    register = context.inst_field(fields.vdst)
    kept = context.rvgpr_dyn(register, lane) & constant(0xFFFF0000 >> shift)
    written = context.wvgpr_dyn(register, lane, kept | half << constant(shift), active)
    return emulator.UOp.sink(written.end(lane), *context.inc_pc())

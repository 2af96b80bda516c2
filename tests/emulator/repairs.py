# SPDX-License-Identifier: GPL-3.0-or-later
"""What the emulator gets wrong and our kernels need, put right in the running process."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.emulator.exchanges import add_exchanges

COMMIT = "a9069c177a9da9cca18593edf55acd2e6073cca6"
"""Of tinygrad: what these tests were written for."""

_HALF_LOADS = {"DS_LOAD_U16_D16": 0, "DS_LOAD_U16_D16_HI": 16, "DS_READ_U16_D16": 0, "DS_READ_U16_D16_HI": 16}
"""Loads of 16 bits from shared memory into half a register, and where that half begins."""


_WMMA_SUMS = "mat_c = [ctx.rvgpr_dyn(src2_r + _c(vgpr), UOp.const(lane, dtypes.int)).bitcast(out_dt)"
_REPAIRED_WMMA_SUMS = """src2 = ctx.inst_field(type(inst).src2)
    in_registers = src2 >= _c(256)
    constant = ctx.rsgpr_dyn(src2, in_registers.ne(True))
    mat_c = [in_registers.where(ctx.rvgpr_dyn(src2_r + _c(vgpr), UOp.const(lane, dtypes.int), in_registers),
                                constant).bitcast(out_dt)"""

_WMMA_ELEMENTS = "'bf16_to_f32' if is_bf16 else 'f16_to_f32'"
_REPAIRED_WMMA_ELEMENTS = "'bf16_to_f32' if is_bf16 else 'fp8_to_f32' if 'FP8' in op_name else 'f16_to_f32'"

_MFMA = {
    "use_acc = bool(_iattr(inst, 'acc_cd'))": "use_acc = _sums_in_acc() or bool(_iattr(inst, 'acc_cd'))",
    "raw = is_vgpr.where(ctx.rvgpr_dyn(": """in_acc = int(_iattr(inst, 'acc') or 0) >> (base > 0) & 1
      raw = is_vgpr.where((ctx.raccvgpr_dyn if in_acc else ctx.rvgpr_dyn)(""",
}

_SHARED_DATA = {
    "      if data_bits_mem <= 32:": (
        "      rdata = ctx.raccvgpr_dyn if use_acc else ctx.rvgpr_dyn\n      if data_bits_mem <= 32:"
    ),
    "data = {'DATA': ctx.rvgpr_dyn(vdata_reg, lane), 'DATA2': ctx.rvgpr_dyn(": (
        "data = {'DATA': rdata(vdata_reg, lane), 'DATA2': rdata("
    ),
    "data = {'DATA': _u64(ctx.rvgpr_dyn(vdata_reg, lane), ctx.rvgpr_dyn(": (
        "data = {'DATA': _u64(rdata(vdata_reg, lane), rdata("
    ),
    "'DATA2': _u64(ctx.rvgpr_dyn(data1_reg, lane), ctx.rvgpr_dyn(": (
        "'DATA2': _u64(rdata(data1_reg, lane), rdata("
    ),
    "data = {'DATA': ctx.rvgpr_dyn(vdata_reg, lane), **{f'DATA{i}': ctx.rvgpr_dyn(": (
        "data = {'DATA': rdata(vdata_reg, lane), **{f'DATA{i}': rdata("
    ),
}

_DPP_SOURCE = {
    "swizzled = ctx.rvgpr_dyn(ctx.inst_field(type(inst).vsrc0), safe_src_lane)": """read_lane = ctx.range()
  read = UOp.placeholder((ctx.wave_size,), dtypes.uint32, slot=0, addrspace=AddrSpace.LOCAL)
  source = ctx.rvgpr_dyn(ctx.inst_field(type(inst).vsrc0), read_lane)
  swizzled = read.after(read.index(read_lane).store(source).end(read_lane)).index(safe_src_lane)"""
}
_DPP_LANES = {
    "    elif op == 'row_mirror'": """    elif dpp & 0x1f0 == 0x160:
      src_lane = row_base + (lane_in_row ^ _c(arg, dtypes.int))
    elif op == 'row_mirror'"""
}
"""0x160 is row_xmask, which the emulator names row_share."""

_OWN_INSTRUCTIONS = ("gfx908", "gfx950")
"""Targets with an instruction that has the bytes of another target's and another meaning: MFMA on gfx908,
conversions from and to e4m3 on gfx950. Their translations are kept apart."""

_SCALES = b"\xac\xd3"
"""Of the first word of a scaled MFMA, whose other half follows 8 bytes later."""

_HIGH_HALVES = {
    "_load_vsrc0": {"if bits['s0'] == 16:": "if bits['s0'] == 16 and not _of_cdna(inst):"},
    "_compile_vop12": {
        "write_hi_half = bits['d'] == 16 and": "write_hi_half = bits['d'] == 16 and not _of_cdna(inst) and",
        "vsrc1_hi = bits['s0'] == 16 and": "vsrc1_hi = bits['s0'] == 16 and not _of_cdna(inst) and",
    },
    "_compile_vopc": {"    if bits['s0'] == 16:\n": "    if bits['s0'] == 16 and not _of_cdna(inst):\n"},
}


def repair(emulator: ModuleType) -> Callable[[str], None]:
    """Half loads: the emulator writes the whole register. Instructions of 16 bits: it takes registers from
    128 on for upper halves, which they are on RDNA alone. WMMA whose sums begin with a constant: it takes the
    constant's number, 128 for zero, for a register's. WMMA of e4m3: it takes them for halves. MFMA and stores
    to shared memory: it ignores that factors and data can be in accumulation registers, and that gfx908's
    sums always are. DPP: it reads lanes that it has already written, and lacks row_xmask. Other lane
    exchanges: exchanges.py. MFMA without scales: it takes the 8 bytes before one for scales. e4m3: it has one
    for all targets. Raises RuntimeError where the emulator is not the one that this was written for.

    Returns a function that is to be called with the target before each instruction is translated.
    """
    _rewrite(
        emulator, "_compile_wmma", {_WMMA_SUMS: _REPAIRED_WMMA_SUMS, _WMMA_ELEMENTS: _REPAIRED_WMMA_ELEMENTS}
    )
    _rewrite(emulator, "_compile_mfma", _MFMA)
    _rewrite(emulator, "_load_dpp16_src0", _DPP_SOURCE)
    _rewrite(emulator, "_dpp16_ctrl", _DPP_LANES)
    _rewrite_handler(emulator, "_compile_mem_op", _SHARED_DATA)
    _of_rdna_only(emulator)
    for form in (emulator.ir3.DS, emulator.ir4.DS, emulator.irc.DS):
        original = emulator._INST_HANDLERS[form]

        def compile_shared(instruction: Any, context: Any, original: Any = original) -> Any:
            shift = _HALF_LOADS.get(emulator._op_name(instruction))
            if shift is None:
                return original(instruction, context)
            return _load_half(emulator, instruction, context, shift)

        emulator._INST_HANDLERS[form] = compile_shared
    add_exchanges(emulator)
    _decode_scales_by_their_word(emulator)
    return _e4m3_of_targets(emulator)


def _decode_scales_by_their_word(emulator: ModuleType) -> None:
    original = emulator.decode_inst

    def decode(code: bytes, family: str = "rdna3") -> Any:
        scaled = family != "cdna" or code[2:4] == _SCALES
        return original(code if scaled else code[:8], family)

    emulator.__dict__["decode_inst"] = decode


def _of_rdna_only(emulator: ModuleType) -> None:
    emulator.__dict__["_of_cdna"] = lambda inst: type(inst).__module__ == emulator.irc.VOP1.__module__
    for name, changes in _HIGH_HALVES.items():
        _rewrite_handler(emulator, name, changes)


def _rewrite_handler(emulator: ModuleType, function: str, changes: dict[str, str]) -> None:
    """`_rewrite` for a function that is in the table of instructions."""
    handlers, original = emulator._INST_HANDLERS, getattr(emulator, function)
    _rewrite(emulator, function, changes)
    for form in [form for form, handler in handlers.items() if handler is original]:
        handlers[form] = getattr(emulator, function)


def _e4m3_of_targets(emulator: ModuleType) -> Callable[[str], None]:
    """gfx942's codes of e4m3 mean half of what the others' do, and that of minus zero is NaN. Where numbers
    are made, the emulator takes subnormal ones for zero."""
    functions, current = emulator._FUNCS, [""]
    to_float, from_float = functions["fp8_to_f32"], functions["f32_to_fp8"]

    def read(code: Any) -> Any:
        value = to_float(code)
        if current[0] != "gfx942":
            return value
        byte = code.cast(emulator.dtypes.uint32) & 0xFF
        return byte.eq(0x80).where(value.const_like(float("nan")), value * 0.5)

    def write(value: Any) -> Any:
        float32, uint32 = emulator.dtypes.float32, emulator.dtypes.uint32
        own = value.bitcast(float32) * (2.0 if current[0] == "gfx942" else 1.0)
        bits, normal = own.bitcast(uint32), from_float(own)
        magnitude = (bits & 0x7FFFFFFF).bitcast(float32)
        # Added to 2^23, a float has no digits behind the point, and its last bits are the number.
        steps = (magnitude * 2.0**9 + 2.0**23).bitcast(uint32) & 0xF
        code = (magnitude < 2.0**-6).where(steps | (bits >> 24 & 0x80), normal.cast(uint32) & 0xFF)
        if current[0] == "gfx942":
            code = code.eq(0x80).where(code.const_like(0), code)
        return code.cast(normal.dtype)

    functions |= {"fp8_to_f32": read, "f32_to_fp8": write}
    emulator.__dict__["_sums_in_acc"] = lambda: current[0] == "gfx908"
    runners = {"": (emulator._get_runner, emulator._canonical_runner_cache)}

    def choose(target: str) -> None:
        current[0] = target
        group = target if target in _OWN_INSTRUCTIONS else ""
        if group not in runners:
            runners[group] = functools.cache(emulator._get_runner.__wrapped__), []
        emulator.__dict__["_get_runner"], emulator.__dict__["_canonical_runner_cache"] = runners[group]

    return choose


def _rewrite(emulator: ModuleType, function: str, changes: dict[str, str]) -> None:
    """changes: new text by old. All at once, as what was rewritten has no source."""
    text = inspect.getsource(getattr(emulator, function))
    for old, new in changes.items():
        if text.count(old) != 1:
            raise RuntimeError(
                f"{function} of this tinygrad is not as expected; the tests were written for commit {COMMIT}"
            )
        text = text.replace(old, new)
    exec(compile(text, f"{emulator.__file__}, repaired", "exec"), vars(emulator))


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

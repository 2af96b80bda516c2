# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the check for races and missing waits, on a few instructions that nothing executes."""

from __future__ import annotations

import ctypes
import shutil

import numpy as np
import pytest

from tests.emulator.effects import EffectsError, effects_of
from tests.emulator.emulator import waves_library
from tests.emulator.races import Listing, RaceCheck

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler, cc")

LANES = {"cdna": 64, "rdna3": 32, "rdna4": 32}
BARRIER = "s_barrier"


def play(family: str, *steps: tuple[int, str]) -> str:
    """Check instructions of up to four waves in this order; return the fault, or an empty string.

    steps: wave and text. v0 holds 16 times the lane; v1 holds it in the wave's own KB.
    """
    library, lanes = waves_library(), LANES[family]
    listed = Listing({4 * i: text for i, (_, text) in enumerate(steps)}, family)
    checked = RaceCheck(library, listed, family, lanes, 4, 8192)
    checked.start_block()
    scalars = np.full(128, 0xFFFFFFFF, np.uint32)
    for place, (wave, _) in enumerate(steps):
        vectors = np.zeros((256, lanes), np.uint32)
        vectors[:2] = 16 * np.arange(lanes, dtype=np.uint32)
        vectors[1] += np.uint32(1024 * wave)
        state = ctypes.c_void_p(checked.waves[wave].ctypes.data)
        fault = library.pass_barrier(ctypes.byref(checked.block), state) or library.check(
            ctypes.byref(checked.block),
            state,
            ctypes.byref(listed.effects(4 * place)),
            place,
            ctypes.c_void_p(scalars.ctypes.data),
            ctypes.c_void_p(vectors.ctypes.data),
        )
        if fault:
            return checked.fault(fault, wave, 4 * place)
    return ""


def alone(family: str, *texts: str) -> str:
    """Check instructions of one wave."""
    return play(family, *((0, text) for text in texts))


LOAD = "global_load_dwordx2 v[4:5], v0, s[2:3]"
WRITE, READ = "ds_write_b128 v0, v[8:11]", "ds_read_b128 v[8:11], v0"
WAIT = "s_waitcnt lgkmcnt(0)"


@pytest.mark.parametrize("use", ["v_add_f32_e32 v6, v5, v6", "v_mov_b32_e32 v4, 0"])
def test_register_of_an_active_load_is_not_used(use: str) -> None:
    assert "uses v" in alone("cdna", LOAD, use)
    assert "uses v" in alone("cdna", LOAD, "s_waitcnt lgkmcnt(0)", use)
    assert not alone("cdna", LOAD, "s_waitcnt vmcnt(0)", use)
    assert not alone("cdna", LOAD, "v_add_f32_e32 v6, v7, v3")


def test_operands_of_the_matrix_unit_are_registers_too() -> None:
    assert "uses a3" in alone(
        "cdna",
        "ds_read_b128 a[0:3], v0",
        "s_waitcnt vmcnt(0)",
        "v_mfma_f32_16x16x16_f16 a[4:7], v[6:7], v[4:5], a[3:6]",
    )
    product = "v_wmma_f32_16x16x16_f16 v[20:27], v[4:7], v[8:11], v[20:27]"
    assert "uses v8" in alone("rdna4", "ds_load_b128 v[8:11], v0", product)


def test_a_wait_completes_all_but_the_newest_of_its_kind() -> None:
    second = "global_load_dword v7, v0, s[2:3]"
    use_first, use_second = "v_mov_b32_e32 v1, v4", "v_mov_b32_e32 v1, v7"
    assert not alone("cdna", LOAD, second, "s_waitcnt vmcnt(1)", use_first)
    assert "uses v7" in alone("cdna", LOAD, second, "s_waitcnt vmcnt(1)", use_second)
    assert "uses v4" in alone("cdna", LOAD, second, "s_waitcnt vmcnt(2)", use_first)


def test_stores_count_as_vector_memory_on_cdna_only() -> None:
    store, use = "global_store_dword v0, v9, s[2:3]", "v_mov_b32_e32 v1, v4"
    assert not alone("cdna", LOAD, store, "s_waitcnt vmcnt(1)", use)
    load = "global_load_b64 v[4:5], v0, s[2:3]"
    store = "global_store_b32 v0, v9, s[2:3]"
    assert alone("rdna3", load, store, "s_waitcnt vmcnt(1)", use)
    assert alone("rdna3", load, store, "s_waitcnt_vscnt null, 0x0", use)
    assert alone("rdna4", load, store, "s_wait_storecnt 0x0", use)


def test_only_a_wait_for_all_completes_scalar_loads() -> None:
    loads = ("s_load_dword s8, s[0:1], 0x0", "s_load_dword s9, s[0:1], 0x4")
    assert "uses s8" in alone("cdna", *loads, "s_waitcnt lgkmcnt(1)", "s_mov_b32 s4, s8")
    assert not alone("cdna", *loads, WAIT, "s_mov_b32 s4, s8")
    newer = ("s_load_b64 vcc, s[0:1], 0x0", "s_load_b32 s9, s[0:1], 0x4")
    assert "uses s106" in alone("rdna4", *newer, "s_wait_kmcnt 0x1", "v_cndmask_b32_e32 v1, v2, v3, vcc_lo")


def test_scalar_loads_do_not_complete_shared_reads() -> None:
    scalar, use = "s_load_dword s8, s[0:1], 0x0", "v_mov_b32_e32 v1, v8"
    assert "uses v8" in alone("cdna", READ, scalar, "s_waitcnt lgkmcnt(1)", use)


def test_each_counter_of_rdna4_completes_its_kind() -> None:
    vector, shared = "global_load_b32 v4, v0, s[2:3]", "ds_load_b32 v5, v0"
    use_vector, use_shared = "v_mov_b32_e32 v1, v4", "v_mov_b32_e32 v1, v5"
    assert alone("rdna4", vector, "s_wait_dscnt 0x0", use_vector)
    assert alone("rdna4", shared, "s_wait_loadcnt 0x0", use_shared)
    assert not alone("rdna4", vector, shared, "s_wait_loadcnt_dscnt 0x0", use_vector, use_shared)
    assert "uses v5" in alone("rdna4", vector, shared, "s_wait_loadcnt_dscnt 0x1", use_vector, use_shared)


def test_a_full_counter_completes_the_oldest() -> None:
    reads = [f"ds_read_b32 v{number}, v0" for number in range(10, 26)]
    assert not alone("cdna", *reads, "v_mov_b32_e32 v1, v10")
    assert alone("cdna", *reads, "v_mov_b32_e32 v1, v11")


def test_a_load_may_follow_another_of_its_kind_into_a_register() -> None:
    assert not alone("cdna", READ, READ)
    assert alone("cdna", READ, "global_load_dword v8, v0, s[2:3]")
    # The other half of the register is kept, by reading it or by not writing it.
    assert alone("cdna", "ds_read_u16_d16 v8, v0", "ds_read_u16_d16_hi v8, v0 offset:2")
    assert not alone("rdna3", "ds_load_u16_d16 v8, v0", "ds_load_u16_d16_hi v8, v0 offset:2")


def test_upper_halves_are_of_the_same_register() -> None:
    upper = "v_cvt_f32_f16_e32 v9, v136/*Invalid register, operand has 'VS_32_Lo128' register class*/"
    assert "v8" in alone("rdna3", "ds_load_u16_d16_hi v8, v0", upper)
    assert not alone("rdna3", "ds_load_u16_d16_hi v8, v0", "s_waitcnt lgkmcnt(0)", upper)


def test_shared_memory_keeps_the_order_of_a_wave() -> None:
    assert not alone("cdna", WRITE, READ, WAIT, WRITE, READ)


@pytest.mark.parametrize(("first", "second"), [(WRITE, READ), (READ, WRITE), (WRITE, WRITE)])
def test_waves_race_unless_a_barrier_lies_between(first: str, second: str) -> None:
    assert "races with wave 0" in play("cdna", (0, first), (1, second))
    barrier = ((0, WAIT), (0, BARRIER), (1, BARRIER))
    assert not play("cdna", (0, first), *barrier, (1, second))
    assert not play("cdna", (0, READ), (1, READ))
    assert "several waves" in play("cdna", (0, READ), (1, READ), (2, WRITE))


@pytest.mark.parametrize(("first", "second"), [(WRITE, READ), (READ, WRITE)])
def test_an_access_in_flight_at_a_barrier_races_behind_it(first: str, second: str) -> None:
    passed = ((0, first), (0, BARRIER), (1, BARRIER))
    assert "races with wave 0" in play("cdna", *passed, (0, "s_nop 0"), (1, second))
    late = play("cdna", *passed, (1, second), (0, "s_nop 0"))
    assert "not completed by a wait before the barrier, races with wave 1" in late


def test_an_access_between_signal_and_wait_belongs_to_both_sides() -> None:
    signal, wait, write = "s_barrier_signal -1", "s_barrier_wait 0xffff", "ds_store_b128 v0, v[8:11]"
    done = "s_wait_dscnt 0x0"
    steps = ((0, signal), (0, write), (0, done), (0, wait), (1, signal), (1, wait), (0, "s_nop 0"))
    assert "wave 1" in play("rdna4", *steps, (1, "ds_load_b32 v3, v0"))
    steps = ((0, write), (0, done), (0, signal), (0, wait), (1, signal), (1, wait), (0, "s_nop 0"))
    assert not play("rdna4", *steps, (1, "ds_load_b32 v3, v0"))


def test_waves_share_no_byte_of_neighbouring_halves() -> None:
    assert not play("cdna", (0, "ds_write_b16 v0, v8"), (1, "ds_write_b16 v0, v8 offset:2"))
    assert play("cdna", (0, "ds_write_b16 v0, v8"), (1, "ds_write_b32 v0, v8"))
    assert not play("cdna", (0, "ds_write_b128 v1, v[8:11]"), (1, "ds_write_b128 v1, v[8:11]"))


def test_two_offsets_are_in_units_of_the_access() -> None:
    effects = effects_of("ds_read2st64_b64 v[4:7], v0 offset0:1 offset1:3", "cdna")
    assert (effects.size, list(effects.offsets)) == (8, [512, 1536])
    effects = effects_of("ds_store_2addr_b32 v0, v1, v2 offset1:5", "rdna3")
    assert (effects.size, list(effects.offsets)) == (4, [0, 20])


@pytest.mark.parametrize(
    "text",
    [
        "flat_load_dword v1, v[2:3]",
        "ds_add_u32 v0, v1",
        "global_load_lds_dword v0, s[2:3]",
        "buffer_load_dword v0, s[0:3], 0 offen lds",
        "s_wait_samplecnt 0x0",
    ],
)
def test_unknown_operations_are_refused(text: str) -> None:
    with pytest.raises(EffectsError):
        effects_of(text, "cdna")

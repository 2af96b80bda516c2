# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the loop that multiplies begins and ends in assembly."""

from __future__ import annotations

from evaluator.gpu.model.assembly import amd_listing, ptx_listing

CLANG = """\
	.text
gemm:                                   ; @gemm
; %bb.0:
	s_load_b128 s[4:7], s[0:1], 0x0
	s_cbranch_vccnz .LBB0_4
.LBB0_1:                                ;   in Loop: Header=BB0_2 Depth=1
	v_wmma_f32_16x16x16_f16 v[1:8], v[9:16], v[17:24], v[1:8]
	s_cbranch_scc1 .LBB0_4
.LBB0_2:                                ; =>This Inner Loop Header: Depth=1
	global_load_b128 v[25:28], v30, s[4:5]
; %bb.3:                                ;   in Loop: Header=BB0_2 Depth=1
	ds_load_b128 v[9:12], v31           ; 16-byte Folded Reload
	s_branch .LBB0_1
.LBB0_4:                                ; =>This Inner Loop Header: Depth=1
	v_add_f32_e32 v1, v1, v2
	s_cbranch_scc1 .LBB0_4
; %bb.5:
	s_endpgm
	.section	.rodata
	.amdhsa_kernel gemm
"""

PTX = """\
.entry gemm(
{
	.reg .b32 	%r<9>;
	ld.param.u64 	%rd1, [gemm_param_0];
$L__BB0_1:
	// begin inline asm
	mma.sync.aligned.m16n8k16 {%f1}, {%r1}, {%r2}, {%f1};
	// end inline asm
	@%p1 bra 	$L__BB0_3;
	add.s32 	%r3, %r3, 1;
$L__BB0_3:
	@%p2 bra 	$L__BB0_1;
	ret;
}
"""


def test_the_loop_of_clangs_assembly_in_the_order_in_which_it_runs() -> None:
    listing = amd_listing(CLANG, lambda instruction: instruction.startswith("v_wmma"))
    assert [each.split()[0] for each in listing.loop] == [
        "global_load_b128",
        "ds_load_b128",
        "s_branch",
        "v_wmma_f32_16x16x16_f16",
        "s_cbranch_scc1",
    ]
    assert [each.split()[0] for each in listing.rest] == [
        "s_load_b128",
        "s_cbranch_vccnz",
        "v_add_f32_e32",
        "s_cbranch_scc1",
        "s_endpgm",
    ]


def test_without_products_all_is_rest() -> None:
    listing = amd_listing(CLANG, lambda instruction: instruction.startswith("v_mfma"))
    assert listing.loop == ()
    assert len(listing.rest) == 10


def test_a_loop_of_ptx_holds_what_is_jumped_over() -> None:
    listing = ptx_listing(PTX, lambda instruction: instruction.startswith("mma"))
    assert [each.split()[0] for each in listing.loop] == [
        "mma.sync.aligned.m16n8k16",
        "@%p1",
        "add.s32",
        "@%p2",
    ]
    assert [each.split()[0] for each in listing.rest] == ["ld.param.u64", "ret"]

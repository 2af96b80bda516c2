# SPDX-License-Identifier: GPL-3.0-or-later
"""That the emulator sees what it is there to see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.backends.gpu.driver.device import DeviceError, Gpu
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.program import Launch
from evaluator.backends.gpu.plan.steps import attention
from evaluator.backends.gpu.plan.tiles import model_chooser
from tests.emulator.emulator import Emulator
from tests.emulator.steps import elements, matrix_of, rounded, run
from tests.emulator.strategy import Emulation
from tests.hip_runtime import standin

pytestmark = pytest.mark.emulator

everywhere = pytest.mark.parametrize("device", ["gfx1100", "gfx1201", "gfx942"], indirect=True)

LANES = np.arange(64)
BARRIER = "__builtin_amdgcn_s_barrier();"


def attend(device: Gpu, *, missing_bytes: int = 0) -> np.ndarray:
    """Attention of one head at one position. missing_bytes: what its launch has too little shared memory."""
    random = np.random.default_rng(1)
    qkv = rounded(random.standard_normal((64, 48)).astype(np.float32), Precision.FP16)
    target = device.info.target
    made = ProgramBuilder(1, target, Precision.FP16, model_chooser(target, Precision.FP16, 1))
    out = attention(made, made.matrix("qkv", 64, 48), 1, 16, None, "attention")
    launch = made.program.steps[0]
    assert isinstance(launch, Launch)
    made.program.steps[0] = replace(launch, shared_bytes=launch.shared_bytes - missing_bytes)
    memory = run(device, made.program, {"qkv": elements(qkv, 48, Precision.FP16)})
    return matrix_of(memory, out, Precision.FP16)


def exchanged(device: Gpu, *statements: str) -> list[NDArray[np.int32]]:
    """[64] for each of some statements: the variable `x` of 64 threads, before which it is their number."""
    parts = "".join(
        f"{{ int x = me; {each} out[{64 * index} + me] = x; }}" for index, each in enumerate(statements)
    )
    source = f"""extern "C" __attribute__((global)) void exchange(int* out) {{
      const int me = __builtin_amdgcn_workitem_id_x(); {parts}
    }}"""
    kernel = device.load(device.compile(source, "exchange", []), "exchange", 0)
    buffer = device.allocate_host(256 * len(statements))
    stream, done = device.create_stream(), device.create_event()
    device.launch(kernel, (1, 1, 1), 64, 0, [np.ctypeslib.as_ctypes(np.uint64(buffer.address))], stream)
    device.record(done, stream)
    device.synchronize(done)
    return list(buffer.array.view(np.int32).reshape(-1, 64))


@everywhere
def test_missing_barriers_change_the_result(device: Gpu, rocm: Path) -> None:
    right = attend(device)
    assert np.isfinite(right).all()
    unchecked = Emulator(device.info.target.name, check_races=False)
    without = Emulation(lambda source: source.replace(BARRIER, ""), lambda _: unchecked)
    standin.load(rocm).set_strategy(without)
    assert not np.array_equal(attend(device), right)


@everywhere
def test_writing_behind_shared_memory_fails_launch(device: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    # The last rows of the keys' weights are written behind what there is.
    with pytest.raises(DeviceError, match="hipErrorLaunchFailure"):
        attend(device, missing_bytes=256)
    assert "attention wrote outside of its shared memory" in capsys.readouterr().out


@everywhere
def test_untrusted_instruction_fails_the_launch(device: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DeviceError, match="hipErrorLaunchFailure"):
        exchanged(device, "x = __atomic_fetch_add(out, x, 0);")
    assert "cannot emulate global_atomic_add" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("device", "exchange"),
    [("gfx1100", "row_ror"), ("gfx1100", "row_xmask"), ("gfx1201", "row_xmask"), ("gfx942", "row_ror")],
    indirect=["device"],
)
def test_lanes_are_exchanged_before_any_is_written(device: Gpu, exchange: str) -> None:
    add = f"v_add_f32_dpp %0, %0, %0 {exchange}:"
    steps = " ".join(f'asm volatile("{add}{distance}" : "+v"(f));' for distance in (8, 4, 2, 1))
    (sums,) = exchanged(device, f"float f = x; {steps} x = f;")
    assert np.array_equal(sums, LANES.reshape(4, 16).sum(axis=1).repeat(16))


@everywhere
def test_swizzles_exchange_lanes(device: Gpu) -> None:
    sources = {
        16 << 10 | 31: LANES ^ 16,
        5 << 5 | 24: LANES & ~7 | 5,
        0x8000 | 0b00_01_10_11: LANES ^ 3,  # in quads
        0xC000 | 3 << 5: LANES & 32 | LANES + 3 & 31,  # rotated
        0xC000 | 1 << 10 | 3 << 5 | 16: LANES & 48 | LANES - 3 & 15,  # back, in rows
    }
    swizzles = [f"x = __builtin_amdgcn_ds_swizzle(x, {offset});" for offset in sources]
    assert np.array_equal(exchanged(device, *swizzles), list(sources.values()))
    some = exchanged(device, *(f"if (x & 1) {swizzle}" for swizzle in swizzles))
    for found, source in zip(some, sources.values(), strict=True):
        assert np.array_equal(found, np.where(LANES & 1, np.where(source & 1, source, 0), LANES))


@pytest.mark.parametrize("device", ["gfx1100", "gfx1201"], indirect=True)
@pytest.mark.parametrize(("kind", "row"), [("", LANES & 48), ("x", LANES & 48 ^ 16)])
def test_permutations_exchange_lanes_of_rows(device: Gpu, kind: str, row: NDArray[np.int64]) -> None:
    source = row | 5 * (LANES & 15) + 3 & 15
    words = sum((5 * i + 3 & 15) << 4 * i for i in range(16))
    low, high = hex(words & 0xFFFFFFFF), hex(words >> 32)
    name = f"permlane{kind}16"
    registers = f'asm("v_{name}_b32 %0, %0, %1, %2" : "+v"(x) : "s"({low}), "s"({high}));'
    controls = {
        "false, false": np.where(source & 1, source, LANES),
        "false, true": np.where(source & 1, source, 0),
        "true, false": source,
    }
    exchanges = [f"x = __builtin_amdgcn_{name}(x, x, {low}, {high}, {each});" for each in controls]
    assert np.array_equal(exchanged(device, registers, *exchanges), [source] * 4)
    some = exchanged(device, *(f"if (x & 1) {exchange}" for exchange in exchanges))
    for found, fetched in zip(some, controls.values(), strict=True):
        assert np.array_equal(found, np.where(LANES & 1, fetched, LANES))


@pytest.mark.parametrize("device", ["gfx950"], indirect=True)
def test_product_ignores_scales_of_earlier_instructions(device: Gpu) -> None:
    # 0x38 is 1 in e4m3.
    product = r'asm volatile("s_nop 0\n s_nop 0\n v_mfma_f32_16x16x128_f8f6f4 %0, %1, %1, %0\n s_nop 15"'
    types = "typedef int Eights __attribute__((ext_vector_type(8)));"
    types += "typedef float Sums __attribute__((ext_vector_type(4)));"
    sums = f'{types} Eights a = 0x38383838; Sums sums = x; {product} : "+v"(sums) : "v"(a)); x = sums[3];'
    assert np.array_equal(exchanged(device, sums), [LANES + 128])


@pytest.mark.parametrize("device", ["gfx1100"], indirect=True)
def test_code_for_another_target_is_refused(device: Gpu) -> None:
    source = 'extern "C" __attribute__((global)) void nothing() {}'
    code = device.compile(source, "nothing", ["--offload-arch=gfx1201", "--no-offload-arch=gfx1100"])
    with pytest.raises(DeviceError, match="hipErrorNoBinaryForGpu"):
        device.load(code, "nothing", 0)

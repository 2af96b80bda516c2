# SPDX-License-Identifier: GPL-3.0-or-later
"""That the emulator sees what it is there to see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluator.gpu.driver.device import Device, DeviceError
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.builder import ProgramBuilder
from evaluator.gpu.plan.program import Launch
from evaluator.gpu.plan.steps import attention
from evaluator.gpu.plan.tiles import model_chooser
from tests.emulator.emulator import Emulator
from tests.emulator.steps import elements, matrix_of, rounded, run
from tests.emulator.strategy import Emulation
from tests.hip_runtime import standin

pytestmark = pytest.mark.emulator

everywhere = pytest.mark.parametrize("device", ["gfx1100", "gfx1201", "gfx942"], indirect=True)

BARRIER = "__builtin_amdgcn_s_barrier();"


def attend(device: Device, *, missing_bytes: int = 0) -> np.ndarray:
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


@everywhere
def test_missing_barriers_change_the_result(device: Device, rocm: Path) -> None:
    right = attend(device)
    assert np.isfinite(right).all()
    unchecked = Emulator(device.info.target.name, check_races=False)
    without = Emulation(lambda source: source.replace(BARRIER, ""), lambda _: unchecked)
    standin.load(rocm).set_strategy(without)
    assert not np.array_equal(attend(device), right)


@everywhere
def test_writing_behind_shared_memory_fails_the_launch(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last rows of the keys' weights are written behind what there is.
    with pytest.raises(DeviceError, match="hipErrorLaunchFailure"):
        attend(device, missing_bytes=256)
    assert "attention wrote outside of its shared memory" in capsys.readouterr().out


@everywhere
def test_an_instruction_that_cannot_be_trusted_fails_the_launch(
    device: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    source = """extern "C" __attribute__((global)) void swizzle(int* out) {
      out[__builtin_amdgcn_workitem_id_x()] = __builtin_amdgcn_ds_swizzle(*out, 0x041f);
    }"""
    kernel = device.load(device.compile(source, "swizzle", []), "swizzle", 0)
    buffer = device.allocate_host(256)
    stream, done = device.create_stream(), device.create_event()
    device.launch(kernel, (1, 1, 1), 64, 0, [np.ctypeslib.as_ctypes(np.uint64(buffer.address))], stream)
    device.record(done, stream)
    with pytest.raises(DeviceError, match="hipErrorLaunchFailure"):
        device.synchronize(done)
    assert "cannot emulate ds_swizzle_b32" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("device", "exchange"),
    [("gfx1100", "row_ror"), ("gfx1100", "row_xmask"), ("gfx1201", "row_xmask"), ("gfx942", "row_ror")],
    indirect=["device"],
)
def test_lanes_are_exchanged_before_any_is_written(device: Device, exchange: str) -> None:
    add = f"v_add_f32_dpp %0, %0, %0 {exchange}:"
    steps = " ".join(f'asm volatile("{add}{distance}" : "+v"(x));' for distance in (8, 4, 2, 1))
    source = f"""extern "C" __attribute__((global)) void sum(float* out) {{
      float x = __builtin_amdgcn_workitem_id_x(); {steps}
      out[__builtin_amdgcn_workitem_id_x()] = x;
    }}"""
    kernel = device.load(device.compile(source, "sum", []), "sum", 0)
    buffer = device.allocate_host(256)
    stream, done = device.create_stream(), device.create_event()
    device.launch(kernel, (1, 1, 1), 64, 0, [np.ctypeslib.as_ctypes(np.uint64(buffer.address))], stream)
    device.record(done, stream)
    device.synchronize(done)
    sums = np.arange(64, dtype=np.float32).reshape(4, 16).sum(axis=1)
    assert np.array_equal(buffer.array.view(np.float32), sums.repeat(16))


@pytest.mark.parametrize("device", ["gfx1100"], indirect=True)
def test_code_for_another_target_is_refused(device: Device) -> None:
    source = 'extern "C" __attribute__((global)) void nothing() {}'
    code = device.compile(source, "nothing", ["--offload-arch=gfx1201", "--no-offload-arch=gfx1100"])
    with pytest.raises(DeviceError, match="hipErrorNoBinaryForGpu"):
        device.load(code, "nothing", 0)

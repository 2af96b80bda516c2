# SPDX-License-Identifier: GPL-3.0-or-later
"""That a missing barrier, a missing wait and a wave's wrong place in shared memory fail the launch.

The other tests run with the same check, and so prove that it reports nothing in the kernels as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluator.backends.gpu.driver.device import DeviceError, Gpu
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan.builder import ProgramBuilder
from evaluator.backends.gpu.plan.steps import attention
from evaluator.backends.gpu.plan.tiles import model_chooser
from tests.emulator.emulator import Emulator
from tests.emulator.faults import places, without
from tests.emulator.steps import elements, normal, rounded, run
from tests.emulator.strategy import Emulation
from tests.hip_runtime import standin

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(900)]

everywhere = pytest.mark.parametrize("device", ["gfx1100", "gfx1201", "gfx942"], indirect=True)

SCALAR = r"s_wait_kmcnt|s_waitcnt lgkmcnt\(0\)"
VECTOR = r"s_wait_loadcnt|s_waitcnt vmcnt"
SHARED = r"s_wait_dscnt|s_waitcnt .*lgkmcnt"
BARRIER = r"s_barrier"


class Faulty(Emulation):
    """Kernels with `s_nop` in place of the instructions that `choose` returns."""

    def __init__(self, choose: Callable[[bytes], list[int]], **emulation: Any) -> None:
        super().__init__(**emulation)
        self._choose = choose

    def compile(self, source: str, name: str, options: list[str]) -> tuple[bytes, str]:
        code, log = super().compile(source, name, options)
        chosen = self._choose(code)
        assert chosen
        return without(code, chosen), log


@pytest.fixture
def fault(device: Gpu, rocm: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Emulation], str]:
    """Run attention on a faulty device and return the message that its launch fails with."""

    def message(emulation: Emulation) -> str:
        standin.load(rocm).set_strategy(emulation)
        capsys.readouterr()
        with pytest.raises(DeviceError, match="hipErrorLaunchFailure"):
            attend(device)
        return capsys.readouterr().out

    return message


def attend(device: Gpu) -> None:
    """Attention with bias of one head at one position."""
    precision, target = Precision.FP16, device.info.target
    qkv, bias = rounded(normal(64, 48), precision), rounded(normal(1, 4096, seed=2), precision)
    made = ProgramBuilder(1, target, precision, model_chooser(target, precision, 1))
    added = made.matrix("bias", 1, 4096)
    attention(made, made.matrix("qkv", 64, 48), 1, 16, added, "attention")
    run(device, made.program, {"qkv": elements(qkv, 48, precision), "bias": elements(bias, 4096, precision)})


def first_barrier(code: bytes) -> int:
    return places(code, BARRIER)[0]


@everywhere
def test_a_missing_barrier_is_reported(device: Gpu, fault: Callable[[Emulation], str]) -> None:
    def both_halves(code: bytes) -> list[int]:
        barriers = places(code, BARRIER)
        return barriers[: 2 if device.info.target.name == "gfx1201" else 1]

    assert "races with wave" in fault(Faulty(both_halves))


@pytest.mark.parametrize(
    ("wait", "register", "load"),
    [(SCALAR, "s", "s_load_"), (VECTOR, "v", "global_load_")],
    ids=["scalar", "vector"],
)
@everywhere
def test_a_missing_wait_for_memory_is_reported(
    fault: Callable[[Emulation], str], wait: str, register: str, load: str
) -> None:
    message = fault(Faulty(lambda code: places(code, wait)[:1]))
    assert f"uses {register}" in message
    assert f"before a wait for `{load}" in message


@everywhere
def test_a_missing_wait_for_shared_reads_is_reported(fault: Callable[[Emulation], str]) -> None:
    def behind_the_barrier(code: bytes) -> list[int]:
        return [place for place in places(code, SHARED) if place > first_barrier(code)]

    message = fault(Faulty(behind_the_barrier))
    assert "before a wait for `ds_" in message


@everywhere
def test_missing_wait_for_operands_of_the_matrix_unit_is_reported(fault: Callable[[Emulation], str]) -> None:
    def before_the_first_product(code: bytes) -> list[int]:
        product = places(code, r"v_wmma|v_mfma")[0]
        return [place for place in places(code, SHARED) if place < product][-1:]

    message = fault(Faulty(before_the_first_product))
    assert "before a wait for `ds_" in message


@everywhere
def test_a_missing_wait_before_a_barrier_is_reported(fault: Callable[[Emulation], str]) -> None:
    def before_the_barrier(code: bytes) -> list[int]:
        barrier = first_barrier(code)
        store = [place for place in places(code, "ds_write|ds_store") if place < barrier][-1]
        return [place for place in places(code, SHARED) if store < place < barrier]

    message = fault(Faulty(before_the_barrier))
    assert "not completed by a wait before the barrier, races with wave" in message


@everywhere
def test_a_place_off_by_a_wave_is_reported(fault: Callable[[Emulation], str]) -> None:
    right = "store_accumulator(logits + first *"
    wrong = "store_accumulator(logits + (first + 16) % 64 *"

    def next_wave(source: str) -> str:
        assert right in source
        return source.replace(right, wrong)

    assert "races with wave" in fault(Emulation(next_wave))


@pytest.mark.parametrize("device", ["gfx1100"], indirect=True)
def test_faults_pass_without_the_check(device: Gpu, rocm: Path) -> None:
    """That the check is what reports them: the emulator executes in order."""
    unchecked = Emulator("gfx1100", check_races=False)
    faulty = Faulty(lambda code: places(code, SHARED)[1:], emulator=lambda _: unchecked)
    standin.load(rocm).set_strategy(faulty)
    attend(device)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Few positions by our own kernels alone: at which batch sizes, and what the programs are made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.gpu.plan.fp8 import rounded_network
from evaluator.gpu.plan.plan import Plan
from evaluator.gpu.plan.program import Branch, Launch, LibraryStep, Program
from evaluator.gpu.plan.quantised import WeightFormat
from evaluator.gpu.plan.tiles import Choice, Measured, estimates
from evaluator.network.random_network import NetworkShape, random_network

HOPPER = nvidia_target(9, 0)
NETWORK = random_network(NetworkShape(256, layers=2, heads=8, ffn=512, smolgen=(32, 64, 64), policy_width=64))
OF_LIBRARY = Choice(None, library="cuBLASLt")


def plan_of(target: Target = HOPPER, *, few: bool = True) -> Plan:
    """few: whether kernels that take norms were measured to be right."""

    def measurements(product: Product) -> list[Measured]:
        found = estimates(product, target, Precision.FP16, 132)
        return [
            Measured(OF_LIBRARY, 0.1),
            *(each for each in found if few or each.choice.cluster is None),
        ]

    return Plan(
        NETWORK,
        target,
        Precision.FP16,
        lambda product: measurements(product)[0].choice,
        measurements=measurements,
    )


def launches(program: Program, file: str) -> list[dict[str, int]]:
    """The constants of each launch of a kernel."""
    steps = (step for step in program.steps if isinstance(step, Launch))
    return [dict(step.kernel.constants) for step in steps if step.kernel.file == file]


def test_no_library_takes_part_and_norms_are_left() -> None:
    for program in plan_of().own_programs(8):
        assert not any(isinstance(step, LibraryStep) for step in program.steps)
        products = launches(program, "gemm_cluster")
        # Of two encoders the second reads what the first leaves, and each its own first norm.
        assert sum(constants["ROW_SUMS"] for constants in products) == 3
        assert sum(constants["RESIDUAL_NORM"] for constants in products) == 3
        assert sum(constants["INPUT_NORM"] for constants in products) >= 3
        for constants in products:
            assert (constants["NORM_PARTS"] > 0) == bool(
                constants["INPUT_NORM"] or constants["RESIDUAL_NORM"]
            )


def test_smolgen_is_a_branch_unless_a_chain_is_asked_for() -> None:
    (branches,) = plan_of().own_programs(8)
    assert Branch.FORK in branches.steps
    chain = plan_of().own_program(8, chained=True)
    assert chain is not None
    assert Branch.FORK not in chain.steps


def test_without_kernels_that_take_norms_they_are_passes() -> None:
    for program in plan_of(few=False).own_programs(8):
        assert not launches(program, "gemm_cluster")
        assert sum(constants["NORMALISE"] for constants in launches(program, "rows")) >= 4


@pytest.mark.parametrize("positions", [1, 33, 256])
def test_other_batches_have_none(positions: int) -> None:
    assert not plan_of().own_programs(positions)


def test_other_plans_have_none() -> None:
    plan = plan_of()
    assert not plan_of(amd_target("gfx942")).own_programs(8)
    assert not plan_of(nvidia_target(8, 0)).own_programs(8)
    assert not replace(plan, measurements=None).own_programs(8)
    assert not replace(plan, packed=WeightFormat.INT8).own_programs(8)
    eight = replace(plan, rounded=rounded_network(NETWORK))
    assert eight.own_programs(8)
    assert not eight.own_programs(16)


def test_the_usual_program_leaves_no_norms() -> None:
    assert not launches(plan_of().program(8), "gemm_cluster")

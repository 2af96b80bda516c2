# SPDX-License-Identifier: GPL-3.0-or-later
"""All encoders in one launch: the same results as by many, and only where they can be had."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.backends.gpu.opening import OpenNetwork, Wanted
from evaluator.backends.gpu.plan.persistent_form import PAIRS_AND_LOGITS, USUAL, PersistentForm
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.program import Launch, Program, WordTable
from evaluator.backends.gpu.plan.tiles import model_chooser
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network import NetworkSpec
from evaluator.network.random_network import SHAPES, NetworkShape, random_network
from evaluator.network.spec import Activation, AttentionBody
from scripts.spills import Kernel, spilled, unavailable
from tests.evaluator.backends.gpu.fibers import ModelTuner, open_amd
from tests.evaluator.golden import all_moves
from tests.hip_runtime.standin import Runtime

pytestmark = pytest.mark.kernels

WITHOUT_SMOLGEN = NetworkShape(64, layers=3, heads=2, ffn=144, policy_width=32, value_channels=8)
UNEVEN = NetworkShape(
    160, layers=2, heads=5, ffn=200, smolgen=(24, 48, 64), dense_embedding=16, policy_width=32
)
"""No width of which is a multiple of a tile's."""


def cooperative(device: Gpu) -> Gpu:
    """The stand-in runs all blocks of such a kernel at once."""
    device.info = replace(device.info, cooperative=True)
    return device


LOGITS_IN_ATTENTION = PersistentForm(logits_in_attention=True)
WITH_SMOLGEN = NetworkShape(64, layers=2, heads=2, ffn=96, smolgen=(8, 32, 32), policy_width=32)


def open_backend(
    network: NetworkSpec,
    cache: Path,
    size: int,
    *,
    deterministic: bool = False,
    check: bool = False,
    form: PersistentForm = USUAL,
) -> GpuBackend:
    device = cooperative(open_amd())
    wanted = Wanted(deterministic=deterministic, buckets=(size,), check=check, form=form)
    tuner = None if deterministic else ModelTuner(device, Precision.FP16)
    compiler = Compiler(device, cache_folder=cache)
    return GpuBackend(OpenNetwork(network, device, wanted, compiler=compiler, tuner=tuner))


def plan_for(
    network: NetworkSpec, target: Target, blocks: int = 132, form: PersistentForm | None = None
) -> Plan:
    chooser = model_chooser(target, Precision.FP16, blocks)
    return Plan(network, target, Precision.FP16, chooser, blocks=blocks, form=form)


def is_persistent(program: Program) -> bool:
    return any(isinstance(step, Launch) and step.cooperative for step in program.steps)


@pytest.mark.parametrize(
    ("shape", "size", "form"),
    [
        (SHAPES["tiny-attention"], 1, USUAL),
        (WITHOUT_SMOLGEN, 1, USUAL),
        (UNEVEN, 2, USUAL),
        (WITH_SMOLGEN, 8, LOGITS_IN_ATTENTION),
        (UNEVEN, 2, LOGITS_IN_ATTENTION),
    ],
)
def test_agrees_with_the_reference(
    shape: NetworkShape, size: int, form: PersistentForm, runtime: Runtime, kernel_cache: Path
) -> None:
    network = random_network(shape, seed=1)
    batch = all_moves(probe_batch(size, seed=2).positions)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    runtime.reset("gfx1100")
    with open_backend(network, kernel_cache, size, form=form) as backend:
        _, persistent = backend.executor.alternatives[size]
        assert is_persistent(persistent)
        assert persistent.written == {f"persistent.{size}.counters"}
        backend.executor.select(size, persistent)
        for lanes in (False, False, True):  # the counters are left as they were found
            if lanes:
                assert backend.executor.open_streams([size])
                backend.executor.compute_beside([size])
            result = backend.evaluate(batch)
            assert np.abs(result.logits - expected.logits).max() <= 2e-2
            assert np.abs(result.wdl - expected.wdl).max() <= 5e-3
            assert np.abs(result.moves_left - expected.moves_left).max() <= 0.5


def test_persistent_program_is_not_used_when_its_results_are_wrong(
    runtime: Runtime, kernel_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = random_network(SHAPES["tiny-attention"], seed=1)
    runtime.reset("gfx1100")
    with open_backend(network, kernel_cache, 1) as backend:
        usual, persistent = backend.executor.alternatives[1]
        # A program that leaves out its last launch, which writes the results.
        broken = replace(persistent, steps=persistent.steps[:-1])
        backend.executor.alternatives[1] = (usual, broken)
        backend.self_check.choose_programs()
        assert backend.executor._programs[1] is usual
    assert "one launch for all encoders is wrong at batch 1" in caplog.text


def test_deterministic_networks_do_without(runtime: Runtime, kernel_cache: Path) -> None:
    runtime.reset("gfx1100")
    with open_backend(random_network("tiny-attention"), kernel_cache, 1, deterministic=True) as backend:
        assert not backend.executor.alternatives


@pytest.mark.parametrize(
    ("shape", "target", "precision", "positions", "expected"),
    [
        ("bt4", nvidia_target(9, 0), Precision.FP16, 1, True),
        ("t80", nvidia_target(9, 0), Precision.BF16, 2, True),
        ("t80", amd_target("gfx1100"), Precision.FP16, 1, True),
        ("t82", amd_target("gfx1100"), Precision.FP16, 1, False),  # smolgen's weights need more space
        ("t82", nvidia_target(9, 0), Precision.FP32, 1, False),  # no matrix unit for it
        ("t82", amd_target("gfx906"), Precision.FP16, 1, False),
        ("t82", nvidia_target(9, 0), Precision.FP16, 3, False),  # no longer a few positions
        ("maia", nvidia_target(9, 0), Precision.FP16, 1, False),
    ],
)
def test_persistent_programs_exist_for_suitable_networks(
    shape: str, target: Target, precision: Precision, positions: int, expected: bool
) -> None:
    small = replace(SHAPES[shape], layers=min(SHAPES[shape].layers, 1), blocks=min(SHAPES[shape].blocks, 1))
    plan = Plan(random_network(small), target, precision, model_chooser(target, precision, 132), blocks=132)
    programs = plan.persistent_programs(positions)
    assert bool(programs) == expected
    assert all(map(is_persistent, programs))


@pytest.mark.parametrize(
    ("target", "blocks", "expected"),
    [
        (nvidia_target(9, 0), 132, 132),
        (nvidia_target(9, 0), 131, 130),
        (nvidia_target(8, 0), 108, None),
        (amd_target("gfx1100"), 96, None),
    ],
)
def test_pairs_are_clusters_of_two(target: Target, blocks: int, expected: int | None) -> None:
    network = random_network(replace(SHAPES["t80"], layers=1))
    programs = plan_for(network, target, blocks, PersistentForm(pairs=True)).persistent_programs(1)
    assert bool(programs) == (expected is not None)
    for program in programs:
        launch = next(step for step in program.steps if isinstance(step, Launch) and step.cooperative)
        assert launch.cluster == 2
        assert launch.grid[0] == launch.together == expected


def test_a_hopper_measures_two_forms() -> None:
    network = random_network(replace(WITH_SMOLGEN, heads=4))
    for target, blocks, positions, forms in (
        (nvidia_target(9, 0), 132, 1, 2),
        (nvidia_target(9, 0), 132, 2, 2),
        (nvidia_target(9, 0), 64, 1, 1),
        (nvidia_target(8, 0), 108, 1, 1),
    ):
        programs = plan_for(network, target, blocks).persistent_programs(positions)
        assert len(programs) == forms
        tables = [
            argument.name
            for program in programs
            for step in program.steps
            if isinstance(step, Launch)
            for argument in step.arguments
            if isinstance(argument, WordTable)
        ]
        assert len(set(tables)) == forms  # each finds its weights by a table of its own


@pytest.mark.parametrize(("channels", "most"), [(256, 8), (512, 4), (1024, 2)])
def test_fewer_positions_have_one_launch_when_the_network_is_wide(channels: int, most: int) -> None:
    target = nvidia_target(9, 0)
    network = random_network(replace(WITHOUT_SMOLGEN, width=channels, heads=channels // 32, layers=1))
    plan = plan_for(network, target)
    assert [size for size in range(1, 12) if plan.persistent_programs(size)] == [*range(1, most + 1)]


@pytest.mark.parametrize("form", [LOGITS_IN_ATTENTION, PAIRS_AND_LOGITS])
def test_every_form_fits_into_the_registers_of_a_hopper(form: PersistentForm) -> None:
    target = nvidia_target(9, 0)
    if problem := unavailable(target):
        pytest.skip(problem)
    network = random_network(replace(SHAPES["bt4"], layers=1))
    (program,) = plan_for(network, target, form=form).persistent_programs(1)
    launch = next(step for step in program.steps if isinstance(step, Launch) and step.cooperative)
    assert spilled(Kernel(launch.kernel, launch.shared_bytes, launch.threads), target) == 0


def test_an_embedding_that_ends_unlike_the_encoders_has_none() -> None:
    network = random_network(UNEVEN)
    assert isinstance(network.body, AttentionBody) and network.body.tail is not None
    tail = network.body.tail
    dense1 = replace(tail.ffn.dense1, activation=Activation.SELU)
    other = replace(network.body, tail=replace(tail, ffn=replace(tail.ffn, dense1=dense1)))
    target = nvidia_target(9, 0)
    for body, expected in ((network.body, True), (other, False)):
        plan = plan_for(replace(network, body=body), target)
        assert bool(plan.persistent_programs(1)) == expected

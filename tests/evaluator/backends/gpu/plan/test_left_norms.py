# SPDX-License-Identifier: GPL-3.0-or-later
"""Which layer norms are left to the products that read their rows."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.target import Precision, amd_target, nvidia_target
from evaluator.backends.gpu.plan.fp8 import rounded_network
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.program import Buffer, Launch, LibraryStep, Program
from evaluator.backends.gpu.plan.quantised import WeightFormat
from evaluator.backends.gpu.plan.quantised import rounded_network as network_of_codes
from evaluator.backends.gpu.plan.tiles import Choice, Measured, Tile
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.spec import AttentionBody

LAYERS = 3
NETWORK = random_network(NetworkShape(64, layers=LAYERS, ffn=96, smolgen=(8, 32, 16), policy_width=48))
GFX1100, GFX1030 = amd_target("gfx1100"), amd_target("gfx1030")
OURS = Choice(Tile(64, 32, 64, 4, 1, 4, 0.5))
WIDER_THAN_ROWS = Choice(Tile(128, 128, 32, 2, 2, 2, 1.0))
SPLIT, LIBRARY = replace(OURS, splits=2), Choice(None, library="hipBLASLt")


def always(choice: Choice) -> Callable[[Product], Choice]:
    return lambda _: choice


def unless(exceptional: Choice, condition: Callable[[Product], bool]) -> Callable[[Product], Choice]:
    return lambda product: exceptional if condition(product) else OURS


def program(choose: Callable[[Product], Choice]) -> Program:
    return Plan(NETWORK, GFX1100, Precision.FP16, choose).program(16)


def launches(program: Program) -> list[Launch]:
    return [step for step in program.steps if isinstance(step, Launch)]


def labels(program: Program, constant: str) -> list[str]:
    """Of the products that have a constant."""
    return [each.label for each in launches(program) if dict(each.kernel.constants).get(constant)]


def passes(program: Program) -> list[str]:
    return [each.label for each in launches(program) if each.kernel.file == "rows"]


def test_all_norms_between_encoders_are_left() -> None:
    made = program(always(OURS))
    products = [f"encoder{index}.{name}" for index in range(LAYERS) for name in ("output", "ffn2")]
    assert labels(made, "ROW_SUMS") == products[:-1]
    # Whatever the body's result is read by takes elements.
    assert "encoder2.ffn2, rows" in passes(made)
    assert not {f"{name}, rows" for name in products[:-1]} & set(passes(made))
    normed = [f"encoder{index}.{name}" for index in range(LAYERS) for name in ("output", "ffn2")]
    assert labels(made, "RESIDUAL_NORM") == normed[1:]
    of_inputs = [label for label in labels(made, "INPUT_NORM") if not label.endswith("qkv_compress.of_norm")]
    assert of_inputs == [f"encoder{index}.ffn1.of_norm" for index in range(LAYERS)]


def test_sums_are_read_before_others_are_written_in_their_place() -> None:
    """A product that reads the sums of its residual leaves its own elsewhere."""
    latest = None
    for launch in launches(program(always(OURS))):
        if launch.kernel.file != "gemm":
            continue
        read, written = launch.arguments[18], launch.arguments[-1]
        assert read is None or read == latest
        if written is not None:
            assert isinstance(written, Buffer)
            assert written != read
            latest = written


@pytest.mark.parametrize("exceptional", [SPLIT, LIBRARY])
def test_a_norm_is_left_only_to_our_own_whole_products(exceptional: Choice) -> None:
    """ffn1 (96 wide) reads the first norm of a layer, and not the second."""
    made = program(unless(exceptional, lambda product: product.n == 96))
    assert labels(made, "ROW_SUMS") == [f"encoder{index}.ffn2" for index in range(LAYERS - 1)]
    made = program(unless(exceptional, lambda product: product.k == 96))  # and so does ffn2's residual
    assert labels(made, "ROW_SUMS") == []


PLAN = Plan(NETWORK, GFX1100, Precision.FP16, always(OURS))
CODES = network_of_codes(NETWORK, WeightFormat.INT8)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(replace(PLAN, fused=False), id="a position's bits must not depend on the tiles"),
        pytest.param(replace(PLAN, target=nvidia_target(9, 0)), id="NVIDIA"),
        pytest.param(replace(PLAN, target=GFX1030), id="no matrix unit"),
        pytest.param(replace(PLAN, precision=Precision.FP32), id="none for fp32"),
        pytest.param(replace(PLAN, choose=always(WIDER_THAN_ROWS)), id="rows are no whole tiles"),
        pytest.param(replace(PLAN, network=CODES, packed=WeightFormat.INT8), id="weights are codes"),
        pytest.param(replace(PLAN, target=amd_target("gfx1200"), rounded=rounded_network(NETWORK)), id="fp8"),
    ],
)
def test_norms_are_not_left_for_unsuitable_plans(plan: Plan) -> None:
    made = replace(plan, weights={}, _linears={}).program(16)
    assert labels(made, "ROW_SUMS") == []
    assert "encoder0.output, rows" in passes(made)


def test_no_norm_is_left_where_launches_take_two_branches() -> None:
    assert labels(replace(PLAN, weights={}, _linears={}).program(4), "ROW_SUMS") == []


def test_the_weights_of_a_norms_readers_have_its_gammas() -> None:
    made = program(always(OURS))
    assert isinstance(NETWORK.body, AttentionBody)
    layer = NETWORK.body.encoders[1]
    gammas, betas = layer.norm1.gammas, layer.norm1.betas
    stored = made.weights["encoder1.ffn1.of_norm.weights"].astype(np.float32)
    assert np.allclose(stored, layer.ffn.dense1.weights * gammas, atol=1e-3)
    sums = made.weights["encoder1.ffn1.of_norm.column_sums"]
    assert np.allclose(sums, stored.sum(axis=1), atol=1e-5)
    biases = made.weights["encoder1.ffn1.of_norm.biases"]
    assert np.allclose(biases, layer.ffn.dense1.biases + layer.ffn.dense1.weights @ betas, atol=1e-5)
    together = made.weights["encoder1.ffn2.biases_and_betas"]
    assert np.allclose(together, layer.alpha * layer.ffn.dense2.biases + betas)


def test_norms_are_passes_when_gammas_times_weights_are_too_large() -> None:
    assert isinstance(NETWORK.body, AttentionBody)
    first, *rest = NETWORK.body.encoders
    norm = replace(first.norm1, gammas=first.norm1.gammas * np.float32(1e6))
    body = replace(NETWORK.body, encoders=(replace(first, norm1=norm), *rest))
    plan = Plan(replace(NETWORK, body=body), GFX1100, Precision.FP16, always(OURS))
    made = plan.program(16)
    assert labels(made, "ROW_SUMS") == []
    assert "encoder0.output, rows" in passes(made)


def test_a_chooser_that_changes_its_mind_gets_norms_as_passes() -> None:
    asked: dict[Product, int] = {}

    def fickle(product: Product) -> Choice:
        asked[product] = asked.get(product, 0) + 1
        return OURS if asked[product] == 1 else SPLIT

    assert labels(program(fickle), "ROW_SUMS") == []


@pytest.mark.parametrize(("library_us", "left"), [(99, True), (82, False)])
def test_measurements_decide_between_libraries_and_left_norms(library_us: float, left: bool) -> None:
    """Our own kernel takes 100 us and a pass 15, with a library's product as with ours. A norm that is left
    saves a pass and costs what our kernel is slower at, here at ffn1, which reads a layer's first norm."""

    def measurements(product: Product) -> list[Measured]:
        after = 15 if product.followed else 0
        found = [Measured(OURS, 100 + after)]
        if product.n == 96:
            found.append(Measured(LIBRARY, library_us + after))
        return sorted(found, key=lambda each: each.microseconds)

    plan = Plan(
        NETWORK,
        GFX1100,
        Precision.FP16,
        lambda product: measurements(product)[0].choice,
        measurements=measurements,
    )
    made = plan.program(16)
    outputs = [f"encoder{index}.output" for index in range(LAYERS)]
    second = [f"encoder{index}.ffn2" for index in range(LAYERS - 1)]
    assert set(labels(made, "ROW_SUMS")) == {*second, *(outputs if left else [])}
    libraries = [step.label for step in made.steps if isinstance(step, LibraryStep)]
    assert ("encoder0.ffn1" in libraries) == (not left)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Libraries under the tuner's eyes: what is right and fastest is chosen, no kind of failure gets through."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.blas.discovery import open_libraries
from evaluator.backends.gpu.blas.library import Library, LibraryGivenUp
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.opening import OpenNetwork, Wanted
from evaluator.backends.gpu.options import Formats
from evaluator.backends.gpu.plan.needs import Needs
from evaluator.backends.gpu.plan.program import LibraryStep
from evaluator.backends.gpu.plan.tiles import Choice, Measured
from evaluator.backends.gpu.tuning import tune
from evaluator.backends.gpu.tuning.bench import Bench
from evaluator.backends.gpu.tuning.samples import Samples
from evaluator.backends.gpu.tuning.tune import Tuner
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network import NetworkSpec
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.spec import Activation
from tests.evaluator.backends.gpu.blas.libraries import opened
from tests.evaluator.backends.gpu.fibers import open_amd
from tests.hip_runtime.blas_standin import Control
from tests.hip_runtime.standin import Runtime

pytestmark = pytest.mark.kernels

PRODUCT = Product(16, 32, 64, Activation.RELU, residual=True, followed=True)

NETWORK = NetworkShape(32, layers=1, ffn=40, policy_width=32)


@pytest.fixture
def libraries(controls: dict[str, Control]) -> Iterator[list[Library]]:
    made = [opened("hipBLASLt", Precision.FP32), opened("hipBLAS", Precision.FP32)]
    yield made
    for library in made:
        library.close()


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Microseconds by library ("" is our own kernel, with one tile): fibers say nothing about time."""
    monkeypatch.setattr(tune, "OWN_CANDIDATES_OF_FEW", 1)
    made = {"": 3.0, "hipBLAS": 2.0, "hipBLASLt": 1.0}
    honest = Bench.first_look

    def first_look(bench: Bench, choice: Choice) -> float:
        honest(bench, choice)
        return made[choice.library] + (0.5 if not choice.fused else 0.0)

    monkeypatch.setattr(Bench, "first_look", first_look)
    monkeypatch.setattr(Bench, "second_look", lambda bench, choice, once: once)
    return made


@pytest.fixture
def tuner(device: Gpu, kernel_cache: Path, libraries: list[Library], times: dict[str, float]) -> Tuner:
    compiler = Compiler(device, cache_folder=kernel_cache)
    return Tuner(device, compiler, Precision.FP32, libraries, use_cache=False)


def used(tuner: Tuner, product: Product = PRODUCT) -> list[str]:
    """The names of the libraries whose results were right, "" for our own, the fastest first."""
    return list(dict.fromkeys(each.choice.library for each in tuner.measure(product)))


@pytest.mark.parametrize("activation", [Activation.NONE, Activation.RELU, Activation.SWISH, Activation.MISH])
@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_every_library_is_right_with_the_passes_that_it_needs(
    tuner: Tuner, activation: Activation, followed: bool, residual: bool
) -> None:
    product = Product(16, 32, 64, activation, residual=residual, followed=followed, bias=not residual)
    measured = tuner.measure(product)
    fused = activation in (Activation.RELU, Activation.SWISH)
    counts = {name: sum(one.choice.library == name for one in measured) for name in ("hipBLASLt", "hipBLAS")}
    assert counts == {"hipBLASLt": 6 if fused else 3, "hipBLAS": 1}
    assert used(tuner, product) == ["hipBLASLt", "hipBLAS", ""]


def test_a_slow_library_is_not_chosen(tuner: Tuner, times: dict[str, float]) -> None:
    times |= {"hipBLASLt": 9.0, "hipBLAS": 8.0}
    assert tuner.choose(PRODUCT).library == ""
    assert used(tuner) == ["", "hipBLAS", "hipBLASLt"]


@pytest.mark.parametrize("failure", ["wrong", "one element", "nan", "nothing", "multiply"])
def test_wrong_library_result_is_dropped_and_logged(
    failure: str, tuner: Tuner, controls: dict[str, Control], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    controls["hipblaslt"].fail(failure)
    assert used(tuner) == ["hipBLAS", ""]
    assert "hipBLASLt for 16 x 32 x 64: not used: hipBLASLt " in caplog.text
    assert "HIPBLAS_STATUS_EXECUTION_FAILED" in caplog.text or "is wrong by" in caplog.text


def test_one_wrong_algorithm_leaves_the_others(tuner: Tuner, controls: dict[str, Control]) -> None:
    controls["hipblaslt"].fail("wrong", 1)
    measured = [each for each in tuner.measure(PRODUCT) if each.choice.library == "hipBLASLt"]
    assert len(measured) == 4  # of six, three of them with the activation


@pytest.mark.parametrize("failure", ["heuristics", "no results"])
def test_no_offer_is_no_complaint(
    failure: str, tuner: Tuner, controls: dict[str, Control], caplog: pytest.LogCaptureFixture
) -> None:
    alive = controls["hipblaslt"].alive
    controls["hipblaslt"].fail(failure)
    assert used(tuner) == ["hipBLAS", ""]
    assert caplog.text == ""
    assert controls["hipblaslt"].alive == alive


def test_libraries_that_are_always_wrong_are_given_up_with_a_warning(
    tuner: Tuner, controls: dict[str, Control], caplog: pytest.LogCaptureFixture
) -> None:
    for control in controls.values():
        control.fail("nan")
    for m in (1, 2, 3):
        assert tuner.choose(Product(m, 16, 32, Activation.NONE)).library == ""
    assert "hipBLASLt computes nothing right here and is not tried any more" in caplog.text
    assert "hipBLAS computes nothing right here and is not tried any more" in caplog.text
    for control in controls.values():
        control.fail("")
    assert tuner.choose(Product(4, 16, 32, Activation.NONE)).library == ""


def test_a_library_that_does_not_return_is_abandoned(
    tuner: Tuner,
    libraries: list[Library],
    controls: dict[str, Control],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tune, "CANDIDATE_S", 0.2)
    controls["hipblaslt"].fail("hang")
    assert tuner.choose(PRODUCT).library == "hipBLAS"
    assert "hipBLASLt: no answer within 0.2 s for 16 x 32 x 64; hipBLASLt is not used any more" in caplog.text
    assert libraries[0].abandoned
    assert tuner.choose(Product(8, 16, 32, Activation.NONE)).library == "hipBLAS"


def test_choices_are_made_again_when_a_library_hangs_later(
    tuner: Tuner, controls: dict[str, Control], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "CANDIDATE_S", 0.2)
    assert tuner.choose(PRODUCT).library == "hipBLASLt"
    controls["hipblaslt"].fail("hang")
    other = Product(8, 16, 32, Activation.NONE)
    with pytest.raises(LibraryGivenUp, match="hipBLASLt"):
        tuner.choose(other)
    assert [tuner.choose(product).library for product in (PRODUCT, other)] == ["hipBLAS", "hipBLAS"]


def test_reported_choices_lack_a_library_that_later_hangs(
    tuner: Tuner, controls: dict[str, Control], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "CANDIDATE_S", 0.2)
    reported: list[tuple[Product, set[str]]] = []

    def found(product: Product, measured: list[Measured]) -> None:
        reported.append((product, {each.choice.library for each in measured}))
        controls["hipblaslt"].fail("hang")

    tuner._on_found = found
    first, second = Product(8, 16, 32, Activation.NONE), Product(8, 32, 32, Activation.NONE)
    tuner.measure_all(Needs([first, second]))
    rest = {"hipBLAS", ""}
    assert reported == [(first, {"hipBLASLt", *rest}), (second, rest), (first, rest)]


@pytest.mark.usefixtures("empty_cache")
def test_a_choice_of_a_library_survives_the_cache(
    device: Gpu, kernel_cache: Path, libraries: list[Library], times: dict[str, float]
) -> None:
    def made() -> Tuner:
        compiler = Compiler(device, cache_folder=kernel_cache)
        return Tuner(device, compiler, Precision.FP32, libraries)

    first = made()
    chosen = first.choose(PRODUCT)
    first.save()
    again = made()
    assert again.choose(PRODUCT) == chosen
    assert (chosen.library, again.measured) == ("hipBLASLt", 0)
    libraries[0].version = "hipBLASLt of another day"
    assert made().known == {}


@pytest.mark.usefixtures("empty_cache")
def test_two_processes_add_to_the_same_cache(device: Gpu, kernel_cache: Path) -> None:
    other = Product(8, 16, 32, Activation.NONE)
    compiler = Compiler(device, cache_folder=kernel_cache)
    both = [Tuner(device, compiler, Precision.FP32, ()) for _ in range(2)]
    for each, product in zip(both, (PRODUCT, other), strict=True):
        each.choose(product)
        each.save()
    assert set(Tuner(device, compiler, Precision.FP32, ()).known) == {PRODUCT, other}


def open_tuned(device: Gpu, kernel_cache: Path, network: NetworkSpec) -> GpuBackend:
    libraries, problems = open_libraries(device.info, Precision.FP32)
    assert problems == {}
    wanted = Wanted(Formats(Precision.FP32), buckets=(2,))
    compiler = Compiler(device, cache_folder=kernel_cache)
    return GpuBackend(OpenNetwork(network, device, wanted, libraries=libraries, compiler=compiler))


def libraries_in(backend: GpuBackend) -> set[str]:
    programs = map(backend.executor._programs.__getitem__, backend.buckets)
    steps = [step for program in programs for step in program.steps]
    return {step.library for step in steps if isinstance(step, LibraryStep)}


@pytest.mark.parametrize("fastest", ["hipBLASLt", "hipBLAS"])
@pytest.mark.usefixtures("empty_cache")
def test_a_whole_network_with_a_library_in_its_graphs(
    fastest: str, runtime: Runtime, controls: dict[str, Control], times: dict[str, float], kernel_cache: Path
) -> None:
    times[fastest] = 0.1
    network = random_network(NETWORK)
    batch = probe_batch(2)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    with open_tuned(open_amd(), kernel_cache, network) as backend:
        assert libraries_in(backend) == {fastest}
        for _ in range(3):  # both slots
            result = backend.evaluate(batch)
            assert np.abs(result.logits - expected.logits).max() < 1e-4
            assert np.abs(result.wdl - expected.wdl).max() < 1e-5
    assert runtime.report().calls["hipLaunchHostFunc"] > 0
    assert [control.alive for control in controls.values()] == [0, 0]


@pytest.mark.usefixtures("empty_cache")
def test_backend_opens_when_a_library_hangs(
    runtime: Runtime,
    controls: dict[str, Control],
    times: dict[str, float],
    kernel_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tune, "CANDIDATE_S", 0.2)
    measure, products = Tuner.measure, []

    def measure_then_hang(
        tuner: Tuner, product: Product, samples: Samples, beside: tuple[Product, Product] | None
    ) -> list[Measured]:
        products.append(product)
        if len(products) == 4:
            controls["hipblaslt"].fail("hang")
        return measure(tuner, product, samples, beside)

    monkeypatch.setattr(Tuner, "measure", measure_then_hang)
    network = random_network(NETWORK)
    with open_tuned(open_amd(), kernel_cache, network) as backend:
        assert libraries_in(backend) == {"hipBLAS"}
    assert len(products) == len(set(products))

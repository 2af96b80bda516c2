# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights of 8 and 4 bits: rounding, the layout of the codes, and the kernels that read them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.backends import BackendError
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.backend import open as open_gpu
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.target import MatrixUnit, Precision, Target, amd_target, nvidia_target
from evaluator.backends.gpu.opening import OpenNetwork, Wanted
from evaluator.backends.gpu.options import Formats
from evaluator.backends.gpu.plan.needs import Needs
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.program import Launch
from evaluator.backends.gpu.plan.quantised import GROUP, Packed, WeightFormat, pack, rounded, rounded_network
from evaluator.backends.gpu.plan.tiles import Choice, Measured, candidates, model_chooser
from evaluator.backends.gpu.tuning.tune import Tuner
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.spec import Activation, FloatArray
from protocol.batch import PositionBatch
from tests.evaluator.backends.gpu.fibers import open_amd, open_on_fibers
from tests.hip_runtime.standin import Runtime

pytestmark = pytest.mark.kernels

SHAPE = NetworkShape(32, layers=1, heads=2, ffn=64, smolgen=(8, 32, 32), policy_width=32, value_channels=8)
"""Every product of its encoder has whole groups along k."""


def weights(n: int = 24, k: int = 96) -> FloatArray:
    return np.random.default_rng(3).standard_normal((n, k), np.float32) * np.float32(0.05)


def halves(values: FloatArray) -> NDArray[np.float16]:
    return values.astype(np.float16)


def codes_in_file_order(packed: Packed, unit: MatrixUnit) -> NDArray[np.int64]:
    """What the lanes of the matrix unit multiply, put back where it was (see kernels/packed.h)."""
    n = len(packed.codes)
    if packed.format is WeightFormat.INT4:
        first, second = packed.codes[:, 0::2].astype(np.int64), packed.codes[:, 1::2].astype(np.int64)
        quads = np.stack([first & 15, second & 15, first >> 4, second >> 4], axis=-1) - 8
    else:
        quads = packed.codes.reshape(n, -1, 4).astype(np.int64) - 128
    result = np.zeros((n, 4 * quads.shape[1]), np.int64)
    for quad in range(quads.shape[1]):
        block, quarter = divmod(quad, 4)
        k = 16 * block + 4 * quarter
        places = [k, k + 1, k + 2, k + 3]
        if unit is MatrixUnit.MMA_SYNC:
            k = 16 * block + 2 * quarter
            places = [k, k + 1, k + 8, k + 9]
        result[:, places] = quads[:, quad]
    return result


@pytest.mark.parametrize("form", WeightFormat)
def test_rounding_is_to_the_nearest_code_of_a_row_or_group(form: WeightFormat) -> None:
    original = weights()
    result = rounded(original, form)
    group = form.group(96)
    steps = np.abs(original).reshape(24, -1, group).max(axis=-1) / form.largest
    off = np.abs(result - original).reshape(24, -1, group).max(axis=-1)
    if form is WeightFormat.INT8:
        assert (off <= 0.501 * steps).all()
    else:  # a smaller scale may cut off the largest weights
        assert (off <= 0.3 * form.largest * steps + steps).all()
        plain = np.rint(original.reshape(24, -1, group) / steps[:, :, None]) * steps[:, :, None]
        assert np.square(result - original).sum() < 0.95 * np.square(plain.reshape(24, 96) - original).sum()
    assert np.array_equal(rounded(original[:, :90], WeightFormat.INT4), original[:, :90])


@pytest.mark.parametrize("unit", [MatrixUnit.MMA_SYNC, MatrixUnit.WMMA_GFX11])
@pytest.mark.parametrize("form", WeightFormat)
def test_codes_of_rounded_weights_give_those_weights(form: WeightFormat, unit: MatrixUnit) -> None:
    original = rounded(weights(), form) * np.float32(0.177)  # the plan scales queries
    original[5] = 0
    packed = pack(halves(original), form, unit)
    assert packed is not None
    assert packed.codes.shape[1] % 16 == 0
    codes = codes_in_file_order(packed, unit)
    assert (codes[:, 96:] == 0).all()
    scales = packed.scales.astype(np.float32)
    each = scales[:, None] if form is WeightFormat.INT8 else np.repeat(scales, GROUP, axis=0).T
    assert np.abs(codes[:, :96] * each - original).max() <= 1e-3 * np.abs(original).max()


@pytest.mark.parametrize("form", WeightFormat)
def test_weights_that_are_no_codes_are_not_packed(form: WeightFormat) -> None:
    assert pack(halves(weights()), form, MatrixUnit.FMA) is None
    shifted = np.zeros((24, 128), np.float32)
    shifted[:, 8:104] = rounded(weights(), form)  # as padding does
    assert (pack(halves(shifted), form, MatrixUnit.FMA) is None) == (form is WeightFormat.INT4)


@pytest.mark.parametrize(
    ("form", "devices", "buckets"),
    [
        (WeightFormat.INT8, "gfx1100", (4,)),
        (WeightFormat.INT8, "gfx906", (8,)),
        (WeightFormat.INT4, "gfx1100", (8,)),
    ],
)
def test_the_kernels_compute_what_the_rounded_network_computes(
    form: WeightFormat, devices: str, buckets: tuple[int, ...], runtime: Runtime, kernel_cache: Path
) -> None:
    network = random_network(SHAPE, seed=1)
    batch = probe_batch(3, seed=2)
    expected = ReferenceBackend(rounded_network(network, form), dtype="float64").evaluate(batch)
    exact = ReferenceBackend(network, dtype="float64").evaluate(batch)
    options: dict[str, Any] = {"precision": Precision.FP16, "weights": form, "buckets": buckets}
    with open_on_fibers(runtime, network, kernel_cache, devices=devices, **options) as backend:
        result = backend.evaluate(batch)
        assert form.value in backend.device
    off = np.abs(result.logits - expected.logits).max()
    assert off <= 2e-2
    assert off < 0.5 * np.abs(expected.logits - exact.logits).max()  # the rounded weights were used
    assert np.abs(result.wdl - expected.wdl).max() <= 5e-3


@pytest.mark.parametrize("form", WeightFormat)
def test_the_products_of_encoders_and_nothing_else_read_codes(form: WeightFormat) -> None:
    target = amd_target("gfx1100")
    network = rounded_network(random_network(SHAPE), form)
    choose = model_chooser(target, Precision.FP16, 64)
    program = Plan(network, target, Precision.FP16, choose, form).program(1)
    products = [step for step in program.steps if isinstance(step, Launch) and step.kernel.file == "gemm"]
    reading = {step.label for step in products if dict(step.kernel.constants)["PACKED"] == form.bits}
    layers = ("qkv", "output", "ffn1", "ffn2", "smolgen.compress", "smolgen.dense1", "smolgen.dense2")
    assert reading == {*(f"encoder0.{layer}" for layer in layers), "smolgen.generate"}
    assert {step.label for step in products} > reading
    assert not [name for name in program.weights if name.removesuffix(".weights") in reading]


def test_position_has_the_same_bits_when_deterministic(runtime: Runtime, kernel_cache: Path) -> None:
    batch = probe_batch(4)
    options: dict[str, Any] = {"precision": Precision.FP16, "weights": WeightFormat.INT4}
    network = random_network(SHAPE)
    with open_on_fibers(
        runtime, network, kernel_cache, deterministic=True, buckets=(1, 4), **options
    ) as backend:
        together = backend.evaluate(batch)
        one = PositionBatch(batch.positions[3:], np.array([0, 35], np.uint32), batch.moves[105:])
        assert np.array_equal(backend.evaluate(one).logits, together.logits[105:])


@pytest.mark.parametrize("form", WeightFormat)
def test_the_tuner_measures_codes_beside_elements(
    form: WeightFormat, runtime: Runtime, kernel_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_amd()
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path))
    product = Product(16, 32, 64, Activation.RELU, weight_bits=form.bits)

    def tuner() -> Tuner:
        return Tuner(device, Compiler(device, cache_folder=kernel_cache), Precision.FP16, ())

    first = tuner()
    chosen = first.choose(product)
    assert {each.choice.packed for each in first.known[product]} == {False, True}
    first.save()
    again = tuner()
    assert again.choose(product) == chosen
    assert again.measured == 0


class PlainTuner:
    """Finds elements faster than codes, as an H200 does."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def expect(self, needs: Callable[[], Needs]) -> None:
        pass

    def choose(self, product: Product) -> Choice:
        return candidates(product, self._target, Precision.FP16)[0]

    def measurements(self, product: Product) -> list[Measured]:
        return [Measured(self.choose(product), 1.0)]

    def save(self) -> None:
        pass


def test_user_is_warned_when_quantised_weights_are_never_faster(
    runtime: Runtime, kernel_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.reset("gfx1100")
    device = open_amd()
    wanted = Wanted(Formats(weights=WeightFormat.INT8), buckets=(4,), check=False)
    compiler, tuner = Compiler(device, cache_folder=kernel_cache), PlainTuner(device.info.target)
    with GpuBackend(OpenNetwork(random_network(SHAPE), device, wanted, compiler=compiler, tuner=tuner)):
        assert "weights=int8 brings nothing" in caplog.text


@pytest.mark.parametrize("target", [amd_target("gfx1100"), amd_target("gfx906"), nvidia_target(9, 0)])
@pytest.mark.parametrize("form", WeightFormat)
def test_every_product_has_a_candidate_that_fits(form: WeightFormat, target: Any) -> None:
    for deterministic in (False, True):
        choose = model_chooser(target, Precision.FP16, 64, deterministic=deterministic)
        for m, k in ((1, 64), (64, 1024), (65536, 2048)):
            product = Product(m, 1024, k, Activation.NONE, weight_bits=form.bits)
            assert choose(product).packed
            for choice in candidates(product, target, Precision.FP16, packed=True):
                assert choice.tile is not None
                assert choice.tile.shared_bytes(target, Precision.FP16, form.bits) <= target.shared_bytes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int3"}, "'int3' is not one of int8, int4"),
        ({"weights": "int8", "precision": "fp32"}, "goes with precision=fp16, not with fp32"),
        ({"weights": "int4", "precision": "bf16"}, "goes with precision=fp16, not with bf16"),
    ],
)
def test_options_are_rejected_when_they_conflict(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendError, match=message):
        open_gpu(random_network("tiny-attention"), **options)


def test_a_network_without_attention_is_refused(runtime: Runtime, kernel_cache: Path) -> None:
    network = random_network("tiny-resnet")
    with pytest.raises(BackendError, match="weights=int8"):
        open_on_fibers(runtime, network, kernel_cache, precision=Precision.FP16, weights=WeightFormat.INT8)

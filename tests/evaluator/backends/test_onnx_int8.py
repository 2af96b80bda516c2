# SPDX-License-Identifier: GPL-3.0-or-later
"""The onnx backend's products in 8 bits: what they compute, and what they do not depend on."""

import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import platformdirs
import pytest
from numpy.typing import NDArray

from evaluator.backends import BackendError, open_backend
from evaluator.backends.common.batches import mask_bits
from evaluator.backends.common.sample import POSITIONS, SAME_PLANES, sample_batch
from evaluator.backends.onnx import backend as module
from evaluator.backends.onnx.backend import OnnxBackend
from evaluator.backends.onnx.calibration import calibrated, feed_of, largest_weight
from evaluator.backends.onnx.graph import Graph
from evaluator.backends.onnx.model import build_observed_model
from evaluator.backends.onnx.products import RoundedProducts, range_outputs
from evaluator.backends.onnx.quantisation import (
    INPUT_STEPS,
    LARGEST_WEIGHT,
    Rounding,
    column_weights,
    quantised_weights,
    rounding_of,
)
from evaluator.backends.onnx.roundings import keep_roundings, known_roundings
from evaluator.backends.onnx.runtime import onnxruntime as ort
from evaluator.network import SHIPPED_NETWORKS, load_network
from evaluator.network.random_network import random_network
from evaluator.network.schema import InputFormat
from evaluator.network.spec import Activation, AttentionBody, FloatArray, NetworkSpec
from evaluator.network.writer import write_network
from evaluator.settings import DeviceSettings
from protocol.batch import POLICY_SIZE, EvaluationBatch, PositionBatch
from tests.shapes import EVERY_PRODUCT

exact_sums = largest_weight() == LARGEST_WEIGHT
"""Whether this processor has VNNI, or what else adds products of 8 bits in 32."""


def inputs_of(rows: int, channels: int) -> FloatArray:
    """Channels of uneven sizes, some of them never below 0."""
    generator = np.random.default_rng(3)
    x = generator.standard_normal((rows, channels)) * np.geomspace(0.01, 10, channels)
    x[:, ::3] = np.abs(x[:, ::3])
    return x.astype(np.float32)


def rounding_for(x: FloatArray, weights: FloatArray) -> Rounding:
    return rounding_of(x.min(axis=0), x.max(axis=0), column_weights(weights))


def stepped(x: FloatArray, rounding: Rounding) -> NDArray[np.int64]:
    """The 8-bit input, less its zero, as the documentation says."""
    steps = np.rint(x * rounding.multipliers / rounding.scale) + np.float32(rounding.zero)
    codes: NDArray[np.int64] = steps.clip(0, INPUT_STEPS).astype(np.int64)
    return codes - int(rounding.zero)


@pytest.mark.parametrize("largest", [LARGEST_WEIGHT, 63])
@pytest.mark.parametrize("multiplied", [False, True])
def test_a_product_is_what_is_documented(largest: int, multiplied: bool) -> None:
    generator = np.random.default_rng(1)
    x = inputs_of(40, 48)
    weights = generator.standard_normal((24, 48)).astype(np.float32)
    biases = generator.standard_normal(24).astype(np.float32)
    rounding = rounding_for(x, weights)
    g = Graph()
    name = g.input("x", 1, ["rows", 48])
    products = RoundedProducts({"p": rounding}, min(largest, largest_weight()))
    g.output(products.linear(g, name, (weights, biases), "p", multiplied=multiplied), "y", ["rows", 24])
    session = ort.InferenceSession(g.model("m", {}).SerializeToString(), providers=["CPUExecutionProvider"])
    beyond = 1.5 * x  # Some are held to the range.
    [y] = session.run(None, {"x": beyond * rounding.multipliers if multiplied else beyond})

    codes, scale = quantised_weights(weights / rounding.multipliers, min(largest, largest_weight()))
    sums = stepped(beyond, rounding) @ codes.T.astype(np.int64)
    assert np.allclose(y, sums * (rounding.scale * scale) + biases, rtol=1e-5, atol=1e-5)
    assert np.abs(codes).max() == min(largest, largest_weight())


def test_seen_range_is_rounded_to_256_values() -> None:
    x = inputs_of(500, 64)
    weights = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)
    rounding = rounding_for(x, weights)
    steps = stepped(x, rounding)
    assert steps.min() + int(rounding.zero) == 0 and steps.max() + int(rounding.zero) == INPUT_STEPS
    assert np.abs(steps * rounding.scale - x * rounding.multipliers).max() <= 0.501 * rounding.scale
    assert not stepped(np.zeros_like(x), rounding).any()


def test_uneven_channels_lose_less_than_with_one_scale_alone() -> None:
    x, weights = inputs_of(500, 64), np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)
    rounding = rounding_for(x, weights)
    even = rounding_of(x.min(axis=0), x.max(axis=0), np.abs(x).max(axis=0))  # All multipliers are 1.

    def error(rounding: Rounding) -> float:
        codes, scale = quantised_weights(weights / rounding.multipliers)
        y = (stepped(x, rounding) @ codes.T.astype(np.int64)) * (rounding.scale * scale)
        return float(np.square(y - x @ weights.T).mean())

    assert np.allclose(even.multipliers, even.multipliers[0], rtol=1e-5)
    assert error(rounding) < error(even) / 2


def test_a_dead_input_and_quiet_channels_are_no_trouble() -> None:
    nothing = np.zeros(4, np.float32)
    dead = rounding_of(nothing, nothing, nothing)
    assert dead.scale > 0 and dead.zero == 0 and (dead.multipliers == 1).all()
    quiet = rounding_of(nothing, np.array([64, 0, 1, 2], np.float32), np.ones(4, np.float32))
    assert quiet.multipliers[1] == quiet.multipliers[2] == pytest.approx(8 * quiet.multipliers[0])
    codes, scale = quantised_weights(np.zeros((2, 3), np.float32))
    assert not codes.any() and (scale > 0).all()


def test_multipliers_do_not_depend_on_the_scale_of_an_output() -> None:
    weights = np.random.default_rng(2).standard_normal((16, 64)).astype(np.float32)
    scales = np.geomspace(1, 99, 16).astype(np.float32)
    assert np.allclose(column_weights(weights), column_weights(weights * scales[:, None]))


def with_activation(network: NetworkSpec, activation: Activation) -> NetworkSpec:
    """With another activation in the encoders' feed-forward layers."""
    body = network.body
    assert isinstance(body, AttentionBody)
    encoders = tuple(
        replace(layer, ffn=replace(layer.ffn, dense1=replace(layer.ffn.dense1, activation=activation)))
        for layer in body.encoders
    )
    return replace(network, body=replace(body, encoders=encoders))


@pytest.mark.parametrize("activation", [Activation.RELU, Activation.RELU_SQUARED, Activation.MISH])
def test_int8_is_near_float32_in_every_batch(activation: Activation) -> None:
    network = with_activation(random_network(EVERY_PRODUCT, seed=5), activation)
    batch = sample_batch(network.input_format).slice(330, 350)
    with OnnxBackend(network, threads=1) as exact, OnnxBackend(network, threads=2, int8=True) as backend:
        assert backend.device == "CPU, 2 threads, int8"
        assert backend.quantisation_error is not None
        assert 0 < backend.quantisation_error.logits < 0.05
        whole, right = backend.evaluate(batch), exact.evaluate(batch)
        for start, stop in ((0, 1), (3, 10), (19, 20)):
            part = backend.evaluate(batch.slice(start, stop))
            first, last = batch.move_offsets[start], batch.move_offsets[stop]
            assert np.array_equal(part.logits, whole.logits[first:last])
            assert np.array_equal(part.wdl, whole.wdl[start:stop])
    assert rms(whole, right) < (0.05 if exact_sums else 0.1) * float(right.logits.std())
    assert np.abs(whole.wdl - right.wdl).max() < 0.05


def rms(one: EvaluationBatch, other: EvaluationBatch) -> float:
    return float(np.sqrt(np.square(one.logits - other.logits).mean()))


def test_every_product_of_the_encoders_is_observed_and_rounded() -> None:
    network = random_network(EVERY_PRODUCT)
    model, products = build_observed_model(network)
    kinds = ("qkv", "smolgen_in", "smolgen_out", "output", "ffn1", "ffn2")
    names = {f"encoders.{layer}.{kind}" for layer in range(2) for kind in kinds}
    assert set(products.columns) == names | {"embedding.ffn1", "embedding.ffn2"}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    batch = sample_batch(network.input_format).slice(0, 40)
    roundings = calibrated(session, products, batch)
    assert set(roundings) == set(products.columns)
    for name, rounding in roundings.items():
        least, largest = session.run(list(range_outputs(name)), feed_of(batch))
        assert stepped(np.stack([least, largest]), rounding).max() + int(rounding.zero) == INPUT_STEPS, name


@pytest.mark.skipif(not exact_sums, reason="this processor adds products in 16 bits, always")
def test_weights_have_7_bits_when_sums_have_16(monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(EVERY_PRODUCT, seed=5)
    batch = sample_batch(network.input_format).slice(330, 350)
    with OnnxBackend(network, threads=1, int8=True) as backend:
        full = backend.evaluate(batch)
    monkeypatch.setattr(module, "largest_weight", lambda: 63)
    monkeypatch.setattr(module, "MAX_LOGITS_ERROR", 0.1)
    with OnnxBackend(network, threads=1, int8=True) as backend, OnnxBackend(network, threads=1) as exact:
        reduced, right = backend.evaluate(batch), exact.evaluate(batch)
    assert not np.array_equal(full.logits, reduced.logits)
    assert rms(full, right) < rms(reduced, right) < 0.1 * float(right.logits.std())


def test_int8_that_costs_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOGITS_ERROR", 1e-4)
    with pytest.raises(BackendError, match=r"int8.*int8"):
        module.check_error(module.measured_roundings(random_network(EVERY_PRODUCT), threads=1)[1])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of measured roundings, one of our own."""
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_: str(tmp_path))
    return tmp_path / "int8"


@pytest.fixture
def from_a_file(tmp_path: Path) -> NetworkSpec:
    write_network(random_network(EVERY_PRODUCT, seed=5), tmp_path / "net.pb.gz")
    return load_network(tmp_path / "net.pb.gz")


def test_roundings_are_kept(cache: Path, from_a_file: NetworkSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = sample_batch(from_a_file.input_format).slice(0, 4)
    with OnnxBackend(from_a_file, threads=1, int8=True) as backend:
        first, error = backend.evaluate(batch), backend.quantisation_error
    monkeypatch.setattr(module, "measured_roundings", lambda *_: pytest.fail("they are known"))
    with OnnxBackend(from_a_file, threads=1, int8=True) as backend:
        assert np.array_equal(backend.evaluate(batch).logits, first.logits)
        assert backend.quantisation_error == error
    other = replace(from_a_file, content_hash="1" * 64)
    (file,) = cache.iterdir()
    file.rename(file.with_name("1" * 32 + ".npz"))
    assert known_roundings(other) is None  # the file names its network


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", None])
def test_damaged_roundings_are_missing(cache: Path, from_a_file: NetworkSpec, damage: bytes | None) -> None:
    OnnxBackend(from_a_file, threads=1, int8=True).close()
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    assert known_roundings(from_a_file) is None
    OnnxBackend(from_a_file, threads=1, int8=True).close()
    assert known_roundings(from_a_file) is not None


@pytest.mark.integration
@pytest.mark.parametrize("name", SHIPPED_NETWORKS)
def test_the_included_networks_have_the_roundings_of_their_weights(name: str) -> None:
    network = load_network(SHIPPED_NETWORKS[name])
    known = known_roundings(network)
    assert known is not None
    measured, error = module.measured_roundings(network)
    assert known[0].keys() == measured.keys()
    for product, rounding in measured.items():
        np.testing.assert_allclose(known[0][product].multipliers, rounding.multipliers, rtol=1e-2)
        assert known[0][product].scale == pytest.approx(rounding.scale, rel=1e-2)
    if exact_sums:
        assert known[1].logits == pytest.approx(error.logits, rel=0.1)


@pytest.mark.parametrize(
    ("machine", "weight", "precision"),
    [("x86_64", LARGEST_WEIGHT, "int8"), ("x86_64", 63, "fp32"), ("aarch64", LARGEST_WEIGHT, "fp32")],
)
def test_int8_is_the_default_of_included_networks_when_faster(
    monkeypatch: pytest.MonkeyPatch, machine: str, weight: int, precision: str
) -> None:
    network = load_network(SHIPPED_NETWORKS["wavefront-cpu"])
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(module, "largest_weight", lambda: weight)
    with open_backend("onnx", network, DeviceSettings(threads=1)) as backend:
        assert backend.device.endswith(precision)
    with open_backend("onnx", network, DeviceSettings(threads=1), int8=False) as backend:
        assert backend.device.endswith("fp32")


def test_8_bits_are_no_default_of_other_networks(
    cache: Path, from_a_file: NetworkSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even after an opening in 8 bits: the same command must give the same evaluations."""
    monkeypatch.setattr(module, "largest_weight", lambda: LARGEST_WEIGHT)
    keep_roundings(from_a_file, *module.measured_roundings(from_a_file))
    with open_backend("onnx", from_a_file, DeviceSettings(threads=1)) as backend:
        assert backend.device.endswith("fp32")


@pytest.mark.parametrize("form", list(InputFormat))
def test_the_sample_has_real_positions_in_every_input_format(form: InputFormat) -> None:
    batch = sample_batch(form)
    assert len(batch) == POSITIONS
    counts = np.diff(batch.move_offsets)
    assert counts.min() >= 2 and batch.moves.max() < POLICY_SIZE
    men = mask_bits(batch.positions)[:, :12].sum(axis=2, dtype=int)
    assert men.sum(axis=1).min() <= 5 and men.sum(axis=1).max() == 32
    assert (men[:, [5, 11]] == 1).all()
    assert _same(batch, sample_batch(SAME_PLANES.get(form, form)))


def _same(one: PositionBatch, other: PositionBatch) -> bool:
    return bool((one.positions == other.positions).all()) and np.array_equal(one.moves, other.moves)

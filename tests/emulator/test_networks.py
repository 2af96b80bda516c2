# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole networks as real machine code, through hip-python and all of the backend, against lc0's own outputs
and against float64."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.backend import GpuBackend
from evaluator.backends.gpu.driver import shipped
from evaluator.backends.gpu.driver.compiler import Compiler
from evaluator.backends.gpu.driver.device import Gpu
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.opening import OpenNetwork, Wanted
from evaluator.backends.gpu.options import Formats
from evaluator.backends.gpu.plan.fp8 import rounded_network
from evaluator.backends.gpu.plan.plan import FP8_POSITIONS
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network import NetworkSpec, load_network
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.spec import FloatArray
from protocol.batch import POLICY_SIZE, PositionBatch
from scripts import code_objects
from tests.emulator.instructions import E4M3_TARGETS, TARGETS
from tests.emulator.strategy import emulator
from tests.evaluator.backends.gpu.fibers import ModelTuner
from tests.evaluator.golden import all_moves, load_golden

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(900)]

GOLDEN = {
    "attention with smolgen": "data/attn_128x4_smolgen",
    "dense embedding": "shared/attn_128x3_multihead",
    "SE-ResNet": "data/resnet_se_64x3_attnpolicy_wdl_mlh",
    "SE-ResNet with a convolutional policy": "data/resnet_se_64x4_convpolicy_wdl_mlh",
}
LIMITS = {Precision.FP16: (2e-2, 5e-3), Precision.FP32: (1e-4, 1e-5)}
"""Largest errors of logits and of win and draw probabilities. In fp16, where logits spread widely, one per
cent of their spread is allowed, too."""

DENSE_EMBEDDING = NetworkShape(
    64, layers=2, ffn=96, dense_embedding=16, smolgen=(8, 32, 16), policy_width=48, policy_layers=1
)


def open_backend(
    network: NetworkSpec, device: Gpu, precision: Precision, cache: Path, bucket: int
) -> GpuBackend:
    compiler = Compiler(device, cache_folder=cache)
    tuner = ModelTuner(device, precision)
    wanted = Wanted(Formats(precision), buckets=(bucket,), check=False)
    return GpuBackend(OpenNetwork(network, device, wanted, compiler=compiler, tuner=tuner))


def assert_close(result: FloatArray, expected: FloatArray, limit: float, precision: Precision) -> None:
    assert expected.std() > 0.01  # the test can see something
    if precision is Precision.FP16:
        limit = max(limit, 0.01 * float(np.ptp(expected)))
    assert np.abs(result - expected).max() <= limit


def every_ninth_move(positions: NDArray[np.void]) -> PositionBatch:
    """As many moves of each position as legal ones have room for; together they are the whole policy."""
    moves = [np.arange(index % 9, POLICY_SIZE, 9, dtype=np.uint16) for index in range(len(positions))]
    offsets = np.cumsum([0, *map(len, moves)]).astype(np.uint32)
    return PositionBatch(positions, offsets, np.concatenate(moves))


@pytest.mark.parametrize(("precision", "count"), [(Precision.FP16, 32), (Precision.FP32, 9)])
@pytest.mark.parametrize("kind", GOLDEN)
@pytest.mark.parametrize("device", TARGETS, indirect=True)
def test_computes_what_lc0_computes(
    device: Gpu, kind: str, precision: Precision, count: int, tmp_path: Path
) -> None:
    """Up to 16 positions are read where they lie in the host's memory, more are copied."""
    golden = load_golden(GOLDEN[kind])
    batch = every_ninth_move(golden.positions[:count])
    run = emulator(device.info.target.name)
    before = run.instructions
    with open_backend(load_network(golden.path), device, precision, tmp_path, count) as backend:
        result = backend.evaluate(batch)
    assert run.instructions > before + 100_000
    logits, wdl = LIMITS[precision]
    ends = batch.move_offsets.astype(np.int64)
    position = np.repeat(np.arange(count), ends[1:] - ends[:-1])
    expected = golden.policy[position, batch.moves]
    assert_close(result.logits, expected, logits, precision)
    for index in range(count):
        own, golden_logits = result.logits[position == index], expected[position == index]
        second, first = np.sort(golden_logits)[-2:]
        assert first - second < logits or own.argmax() == golden_logits.argmax()
    assert np.abs(result.wdl[:, 0] - result.wdl[:, 2] - golden.q[:count]).max() <= 2 * wdl
    assert np.abs(result.wdl[:, 1] - golden.d[:count]).max() <= wdl


@pytest.mark.parametrize("bucket", [1, 8])
@pytest.mark.parametrize("device", TARGETS, indirect=True)
def test_dense_embedding_and_policy_encoders(device: Gpu, bucket: int, tmp_path: Path) -> None:
    """One position takes two branches of a graph, eight a chain with wider products."""
    network = random_network(DENSE_EMBEDDING, seed=3)
    batch = all_moves(probe_batch(bucket, seed=5).positions)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    with open_backend(network, device, Precision.FP16, tmp_path, bucket) as backend:
        result = backend.evaluate(batch)
    logits, wdl = LIMITS[Precision.FP16]
    assert_close(result.logits, expected.logits, logits, Precision.FP16)
    assert np.abs(result.wdl - expected.wdl).max() <= wdl
    assert np.abs(result.moves_left - expected.moves_left).max() <= 0.5


@pytest.mark.parametrize("device", E4M3_TARGETS, indirect=True)
def test_products_of_8_bits_compute_the_rounded_network(device: Gpu, tmp_path: Path) -> None:
    """Batches too small for it compute the network as it is."""
    network = random_network(replace(DENSE_EMBEDDING, policy_layers=0), seed=3)
    batch = probe_batch(FP8_POSITIONS, seed=5)
    exact = ReferenceBackend(network, dtype="float64").evaluate(batch)
    rounded = ReferenceBackend(rounded_network(network), dtype="float64").evaluate(batch)
    compiler = Compiler(device, cache_folder=tmp_path)
    wanted, tuner = (
        Wanted(Formats(fp8=FP8_POSITIONS), buckets=(1, FP8_POSITIONS)),
        ModelTuner(device, Precision.FP16),
    )
    with GpuBackend(OpenNetwork(network, device, wanted, compiler=compiler, tuner=tuner)) as backend:
        result = backend.evaluate(batch)
        few = backend.evaluate(batch.slice(0, 1))
    cost = np.sqrt(np.square(exact.logits - rounded.logits).mean())
    off = np.sqrt(np.square(result.logits - rounded.logits).mean())
    assert off < 0.5 * cost  # other roundings would be off by 1.4 times the cost
    assert np.abs(few.logits - exact.logits[: len(few.logits)]).max() < LIMITS[Precision.FP16][0]


@pytest.mark.parametrize("device", TARGETS, indirect=True)
def test_position_has_equal_bits_in_every_batch(device: Gpu, tmp_path: Path) -> None:
    network = random_network(DENSE_EMBEDDING, seed=3)
    positions = probe_batch(20, seed=5).positions
    compiler = Compiler(device, cache_folder=tmp_path)
    wanted = Wanted(deterministic=True, buckets=(1, 20), check=False)
    with GpuBackend(OpenNetwork(network, device, wanted, compiler=compiler)) as backend:
        together = backend.evaluate(every_ninth_move(positions))
        alone = backend.evaluate(every_ninth_move(positions[:1]))
    assert np.array_equal(alone.logits, together.logits[: len(alone.logits)])
    assert np.array_equal(alone.wdl[0], together.wdl[0])
    assert alone.moves_left[0] == together.moves_left[0]


@pytest.mark.parametrize("device", ["gfx90a", "gfx1100"], indirect=True)
def test_the_count_of_quiet_moves_is_no_matter_of_subnormal_weights(device: Gpu, tmp_path: Path) -> None:
    """Its plane holds numbers up to 99, and its weights are a hundredth of the others'. gfx90a takes
    subnormal numbers as zero, and was off by 0.0085 when it read that plane's weights as they are."""
    golden = load_golden(GOLDEN["SE-ResNet with a convolutional policy"])
    network = load_network(golden.path)
    positions = golden.positions[:4].copy()
    positions["rule50"] = 98
    batch = all_moves(positions)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    with open_backend(network, device, Precision.FP16, tmp_path, len(positions)) as backend:
        result = backend.evaluate(batch)
    assert np.abs(result.logits - expected.logits).max() <= 6e-3


@pytest.mark.parametrize("name", ["maia", "wavefront-cpu.pb.gz"])
@pytest.mark.parametrize("device", [each for each in TARGETS if shipped.family(each)], indirect=True)
def test_code_objects_of_a_release_compute_a_network(
    device: Gpu, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (archive := os.environ.get("AMD_CODE_OBJECTS")) is None:
        pytest.skip("AMD_CODE_OBJECTS does not name what scripts.code_objects has made")
    monkeypatch.setattr(shipped, "archive_path", lambda: Path(archive))
    network = code_objects.networks()[name]
    batch = probe_batch(9, seed=5)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    with open_backend(network, device, Precision.FP16, tmp_path / "empty", 9) as backend:
        result = backend.evaluate(batch)
    assert_close(result.logits, expected.logits, LIMITS[Precision.FP16][0], Precision.FP16)
    assert np.abs(result.wdl - expected.wdl).max() <= LIMITS[Precision.FP16][1]
    assert not (tmp_path / "empty").exists()

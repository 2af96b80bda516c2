# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole networks through hip-python, the plan, the executor and the real kernels, on CPU fibers, against
float64."""

from pathlib import Path

import numpy as np
import pytest

from evaluator.backends import BackendError
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network import load_network
from evaluator.network.random_network import SHAPES, random_network
from protocol.batch import EvaluationBatch
from tests.evaluator.backends.gpu.fibers import open_on_fibers
from tests.evaluator.golden import all_moves, load_golden
from tests.hip_runtime.standin import Runtime
from tests.paths import DATA
from tests.shapes import KINDS

pytestmark = pytest.mark.kernels

LIMITS = {
    Precision.FP32: (1e-4, 1e-5, 2e-3),
    Precision.FP16: (2e-2, 5e-3, 0.5),
    Precision.BF16: (0.15, 0.04, 4.0),
}
"""Largest errors of logits, probabilities and moves left."""

NETWORKS = {name: SHAPES[name] for name in ("tiny-attention", "tiny-resnet")} | KINDS
EACH_KIND = (
    *("dense embedding", "classical policy", "no squeeze and excitation", "tower with attention policy"),
    *("widths that fill no chunk of 8", "one head of depth 144"),
)
ACTIVATIONS = [name for name in KINDS if name.startswith("ffn and smolgen ")]
COMBINATIONS = [
    *((name, Precision.FP32, "gfx1100") for name in EACH_KIND),
    *(pytest.param(name, Precision.FP32, "gfx1100", marks=pytest.mark.slow) for name in ACTIVATIONS),
    ("tiny-attention", Precision.FP16, "gfx942"),
    ("widths that fill no chunk of 8", Precision.FP16, "gfx1201"),
    ("tiny-resnet", Precision.FP16, "gfx1201"),
    ("tiny-attention", Precision.BF16, "gfx906"),
]
"""Waves are 64 lanes wide on gfx942 and gfx906. The tiles are those of the target; fibers multiply them
without matrix units. Networks of the first two names are also in tests/backends."""

GOLDEN = [f"data/{path.name.removesuffix('.pb.gz')}" for path in sorted((DATA / "lc0" / "nets").glob("*.gz"))]
SHARED_GOLDEN = [
    pytest.param(f"shared/{name}", marks=pytest.mark.slow)
    for name in ("attn_128x3_multihead", "act_smolgen_swish")
]
"""Networks with what lc0 itself computes for them."""


def assert_close(result: EvaluationBatch, expected: EvaluationBatch, precision: Precision) -> None:
    logits, wdl, moves_left = LIMITS[precision]
    assert expected.logits.std() > 0.05  # the test can see something
    assert np.abs(result.logits - expected.logits).max() <= logits
    assert np.abs(result.wdl - expected.wdl).max() <= wdl
    assert np.abs(result.moves_left - expected.moves_left).max() <= moves_left


@pytest.mark.parametrize(("name", "precision", "target"), COMBINATIONS)
def test_agrees_with_the_reference(
    name: str, precision: Precision, target: str, runtime: Runtime, kernel_cache: Path
) -> None:
    network = random_network(NETWORKS[name], seed=1)
    batch = all_moves(probe_batch(3, seed=2).positions)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    # From 8 positions on smolgen shares a product with q, k and v.
    buckets = (8,) if name == "dense embedding" else (4,)
    with open_on_fibers(
        runtime, network, kernel_cache, devices=target, precision=precision, buckets=buckets
    ) as backend:
        assert_close(backend.evaluate(batch), expected, precision)


@pytest.mark.parametrize("target", ["gfx1030", "gfx90a"])
@pytest.mark.parametrize("case", [*GOLDEN, *SHARED_GOLDEN])
def test_computes_what_lc0_computes(case: str, target: str, runtime: Runtime, kernel_cache: Path) -> None:
    golden = load_golden(case)
    few = slice(0, 2)
    network = load_network(golden.path)
    with open_on_fibers(runtime, network, kernel_cache, devices=target, buckets=(2,)) as backend:
        result = backend.evaluate(all_moves(golden.positions[few]))
    assert np.abs(result.logits.reshape(2, -1) - golden.policy[few]).max() <= 1e-4
    assert np.abs(result.wdl[:, 0] - result.wdl[:, 2] - golden.q[few]).max() <= 1e-5
    assert np.abs(result.wdl[:, 1] - golden.d[few]).max() <= 1e-5
    assert np.abs(result.moves_left - golden.m[few]).max() <= 2e-3


def test_little_memory_means_smaller_batches_then_a_clear_error(runtime: Runtime, kernel_cache: Path) -> None:
    network = random_network("tiny-attention")
    with open_on_fibers(
        runtime, network, kernel_cache, buckets=(1, 4, 64), devices="gfx1100,memory_mb=8"
    ) as backend:
        assert backend.max_batch == 4
        assert len(backend.evaluate(probe_batch(3))) == 3
    with pytest.raises(BackendError, match="not enough free memory"):
        open_on_fibers(runtime, network, kernel_cache, buckets=(1, 4), devices="gfx1100,memory_mb=1")

"""What every backend must do, run for each. A new backend is accepted when its entry in BACKENDS passes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from evaluator.backends import Backend, available_backends, open_backend
from evaluator.backends.probe import probe_batch
from evaluator.backends.reference import ReferenceBackend
from evaluator.network import NetworkSpec, load_network
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.schema import PolicyFormat
from evaluator.network.spec import Activation, AttentionBody
from protocol.batch import PositionBatch
from tests.evaluator.golden import all_moves, golden_cases, load_golden


@dataclass(frozen=True)
class Case:
    """A backend and how far it may be off: from lc0's own fp32, and, for other networks, from float64."""

    name: str
    logits: float
    value: float
    moves_left: float
    options: dict[str, Any] = field(default_factory=dict)


BACKENDS = {
    "reference-float64": Case("reference", 2e-5, 5e-6, 2e-4, {"dtype": "float64"}),
    "reference-float32": Case("reference", 2e-5, 5e-6, 2e-4, {"dtype": "float32"}),
    "gpu-fp32": Case("gpu", 1e-4, 1e-5, 2e-3, {"precision": "fp32", "max_batch": 64}),
    "gpu-fp16": Case("gpu", 2e-2, 5e-3, 0.5, {"precision": "fp16", "max_batch": 64}),
    "onnx": Case("onnx", 5e-5, 1e-5, 5e-4),
}


@pytest.fixture(params=BACKENDS)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    case = BACKENDS[request.param]
    reason = available_backends()[case.name]
    if reason is not None:
        pytest.skip(f"backend {case.name}: {reason}")
    yield case


def opened(case: Case, network: NetworkSpec) -> Backend:
    return open_backend(case.name, network, **case.options)


SHAPES = {
    "classical policy": NetworkShape(16, blocks=2, se=8, policy=PolicyFormat.CLASSICAL, value_channels=4),
    "no squeeze and excitation": NetworkShape(
        16, blocks=2, policy=PolicyFormat.CONVOLUTION, value_channels=4
    ),
    "mish tower": NetworkShape(
        16, blocks=2, se=4, policy=PolicyFormat.CONVOLUTION, wdl=False, moves_left=False
    ),
    "tower with attention policy": NetworkShape(
        32, blocks=1, se=4, policy_embedding=24, policy_width=16, policy_layers=2, ffn=40
    ),
    "tower under an attention body": NetworkShape(32, blocks=2, layers=2, se=4, ffn=40, policy_width=24),
    "policy encoders on an attention body": NetworkShape(
        32, layers=2, ffn=40, policy_embedding=48, policy_layers=1
    ),
    "attention wider than the embedding": NetworkShape(32, layers=2, model=64, heads=8, ffn=40),
    "dense embedding": NetworkShape(32, layers=2, ffn=40, dense_embedding=8, smolgen=(4, 16, 8)),
    "dense embedding without gates": NetworkShape(32, layers=2, ffn=40, dense_embedding=4, gating=False),
    "relu everywhere": NetworkShape(
        32, layers=2, ffn=40, activation=Activation.RELU, ffn_activation=Activation.RELU, wdl=False
    ),
    **{
        f"ffn and smolgen {activation.value}": NetworkShape(
            32,
            layers=1,
            ffn=40,
            smolgen=(4, 16, 8),
            ffn_activation=activation,
            smolgen_activation=activation,
        )
        for activation in Activation
    },
}


@pytest.mark.parametrize("name", golden_cases())
def test_computes_what_lc0_computes(case: Case, name: str) -> None:
    if case.options.get("dtype") == "float64" and name.startswith("shared/"):
        pytest.skip("float64 is slow, and its copies of these networks suffice")
    golden = load_golden(name)
    network = load_network(golden.path, policy_head=golden.policy_head, value_head=golden.value_head)
    with opened(case, network) as backend:
        result = backend.evaluate(all_moves(golden.positions))
    assert np.abs(result.logits.reshape(golden.policy.shape) - golden.policy).max() <= case.logits
    assert np.abs(result.wdl[:, 0] - result.wdl[:, 2] - golden.q).max() <= case.value
    assert np.abs(result.wdl[:, 1] - golden.d).max() <= case.value
    assert np.abs(result.wdl.sum(axis=1) - 1).max() <= 1e-5
    assert np.abs(result.moves_left - golden.m).max() <= case.moves_left


@pytest.mark.parametrize("name", SHAPES)
def test_agrees_with_the_float64_reference_on_every_kind_of_layer(case: Case, name: str) -> None:
    network = random_network(SHAPES[name], seed=1)
    batch = all_moves(probe_batch(4, seed=2).positions)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    with opened(case, network) as backend:
        result = backend.evaluate(batch)
    assert expected.logits.std() > 0.05  # the test can see something
    assert np.abs(result.logits - expected.logits).max() <= case.logits
    assert np.abs(result.wdl - expected.wdl).max() <= case.value
    assert np.abs(result.moves_left - expected.moves_left).max() <= case.moves_left


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_smolgen_on_policy_encoders_uses_the_shared_matrix(dtype: str) -> None:
    network = random_network(NetworkShape(32, layers=1, ffn=40, smolgen=(4, 16, 8), policy_layers=1))
    assert isinstance(network.body, AttentionBody)
    batch = probe_batch(2)
    reference = open_backend("reference", network, dtype=dtype).evaluate(batch)
    onnx = open_backend("onnx", network).evaluate(batch)
    assert np.abs(reference.logits - onnx.logits).max() < 1e-5


@pytest.mark.parametrize("count", [1, 2, 7, 33, 130])
def test_a_position_does_not_depend_on_its_batch(case: Case, count: int) -> None:
    network = random_network("tiny-attention")
    batch = probe_batch(count, seed=3)
    last = PositionBatch(
        batch.positions[-1:], np.array([0, 35], np.uint32), np.ascontiguousarray(batch.moves[-35:])
    )
    with opened(case, network) as backend:
        together, alone = backend.evaluate(batch), backend.evaluate(last)
    assert len(together) == count
    assert np.abs(together.logits[-35:] - alone.logits).max() <= case.logits
    assert np.abs(together.wdl[-1] - alone.wdl[0]).max() <= case.value


def test_batches_may_be_under_way_at_the_same_time(case: Case) -> None:
    batches = [probe_batch(count, seed=count) for count in (1, 3, 8, 5)]
    with opened(case, random_network("tiny-attention")) as backend:
        alone = [backend.evaluate(batch) for batch in batches]
        with ThreadPoolExecutor(backend.max_in_flight) as threads:
            together = list(threads.map(backend.evaluate, batches * 8))
    for index, result in enumerate(together):
        assert np.abs(result.logits - alone[index % 4].logits).max() <= case.logits
        assert np.abs(result.wdl - alone[index % 4].wdl).max() <= case.value


def test_logits_come_in_the_order_of_the_moves(case: Case) -> None:
    network = random_network("tiny-resnet")
    forward = probe_batch(2)
    backward = replace(forward, moves=np.concatenate([forward.moves[:35][::-1], forward.moves[35:]]))
    with opened(case, network) as backend:
        straight, turned = backend.evaluate(forward).logits, backend.evaluate(backward).logits
    assert np.array_equal(straight[:35][::-1], turned[:35])
    assert np.array_equal(straight[35:], turned[35:])


def test_positions_without_legal_moves_are_evaluated(case: Case) -> None:
    batch = probe_batch(3)
    mated = PositionBatch(batch.positions, np.array([0, 0, 2, 2], np.uint32), np.array([5, 9], np.uint16))
    with opened(case, random_network("tiny-attention")) as backend:
        full, result = backend.evaluate(all_moves(batch.positions)), backend.evaluate(mated)
    assert np.abs(result.logits - full.logits[[1858 + 5, 1858 + 9]]).max() <= case.logits
    assert result.wdl.shape == (3, 3)


def test_results_are_plain_float32_arrays(case: Case) -> None:
    with opened(case, random_network("tiny-attention")) as backend:
        result = backend.evaluate(probe_batch(2))
    for array in (result.logits, result.wdl, result.moves_left):
        assert array.dtype == np.float32
        assert array.flags.c_contiguous


def test_a_single_value_becomes_win_and_loss(case: Case) -> None:
    network = random_network(NetworkShape(16, blocks=1, wdl=False, moves_left=False))
    with opened(case, network) as backend:
        result = backend.evaluate(probe_batch(4))
    assert np.all(result.wdl[:, 1] == 0)
    assert np.abs(result.wdl.sum(axis=1) - 1).max() < 1e-6
    assert np.all(result.moves_left == 0)
    assert np.ptp(result.wdl[:, 0]) > 0


def test_rule_50_is_read_from_the_record(case: Case) -> None:
    batch = probe_batch(2)
    batch.positions[1] = batch.positions[0]
    batch.positions["rule50"] = [0, 80]
    with opened(case, random_network("tiny-attention")) as backend:
        result = backend.evaluate(batch)
    assert np.abs(result.logits[:35] - result.logits[35:]).max() > 0.01


def test_closing_twice_is_allowed(case: Case) -> None:
    backend = opened(case, random_network("tiny-resnet"))
    backend.close()
    backend.close()

# SPDX-License-Identifier: GPL-3.0-or-later
"""The right numbers: for every kind of network, against lc0 and against the float64 reference."""

from collections.abc import Callable

import numpy as np
import pytest

from evaluator.backends import Backend, open_backend
from evaluator.backends.common.agreement import Agreement, agreement
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.reference.backend import ReferenceBackend
from evaluator.network import load_network
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.spec import AttentionBody
from protocol.batch import EvaluationBatch, PositionBatch
from tests.backends.batches import evaluate_in_parts, varied_batch
from tests.backends.subjects import Subject
from tests.evaluator.golden import all_moves, golden_cases, load_golden
from tests.shapes import KINDS

pytestmark = pytest.mark.integration


def compare(subject: Subject, backend: Backend, batch: PositionBatch, expected: EvaluationBatch) -> Agreement:
    """Raises AssertionError, with the figures, for what is off by too much."""
    tolerance = subject.tolerance_of(backend)
    result = evaluate_in_parts(backend, batch)
    assert np.abs(result.wdl.sum(axis=1) - 1).max() <= 1e-5
    found = agreement(result, expected, batch, tolerance)
    assert found.within(tolerance), f"{found}; allowed are {tolerance}"
    assert found.moves_left <= tolerance.moves_left
    return found


@pytest.mark.parametrize("name", golden_cases())
def test_computes_what_lc0_computes(
    quick_subject: Subject, name: str, record_property: Callable[[str, object], None]
) -> None:
    if quick_subject.name == "reference:dtype=float64" and name.startswith("shared/"):
        pytest.skip("float64 is slow, and its copies of these networks suffice")
    golden = load_golden(name)
    network = load_network(golden.path, policy_head=golden.policy_head, value_head=golden.value_head)
    win, loss = (1 - golden.d + golden.q) / 2, (1 - golden.d - golden.q) / 2
    expected = EvaluationBatch(golden.policy.reshape(-1), np.stack([win, golden.d, loss], axis=1), golden.m)
    with quick_subject.open(network) as backend:
        found = compare(quick_subject, backend, all_moves(golden.positions), expected)
    # Both figures go into a --junit-xml report: a tie is no error, but it should be seen.
    record_property("same best move", f"{found.same_best_move:.2%}")
    record_property("same best move or one as good", f"{found.as_good_a_move:.2%}")


@pytest.mark.parametrize("name", KINDS)
def test_agrees_with_the_float64_reference_on_every_kind_of_layer(quick_subject: Subject, name: str) -> None:
    network = random_network(KINDS[name], seed=1)
    batch = all_moves(probe_batch(4, seed=2).positions)
    expected = ReferenceBackend(network, dtype="float64").evaluate(batch)
    assert expected.logits.std() > 0.05  # the test can see something
    with quick_subject.open(network) as backend:
        compare(quick_subject, backend, batch, expected)


@pytest.mark.parametrize("name", ["tiny-attention", "tiny-resnet"])
def test_finds_the_best_moves(subject: Subject, name: str) -> None:
    network = random_network(name)
    batch = varied_batch(5 if subject.slow else 300, seed=5)
    expected = evaluate_in_parts(ReferenceBackend(network, dtype="float64"), batch)
    with subject.open(network) as backend:
        compare(subject, backend, batch, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_smolgen_on_policy_encoders_uses_the_shared_matrix(dtype: str) -> None:
    network = random_network(NetworkShape(32, layers=1, ffn=40, smolgen=(4, 16, 8), policy_layers=1))
    assert isinstance(network.body, AttentionBody)
    batch = probe_batch(2)
    reference = open_backend("reference", network, dtype=dtype).evaluate(batch)
    onnx = open_backend("onnx", network).evaluate(batch)
    assert np.abs(reference.logits - onnx.logits).max() < 1e-5


def test_a_single_value_becomes_win_and_loss(subject: Subject) -> None:
    network = random_network(NetworkShape(16, blocks=1, wdl=False, moves_left=False))
    with subject.open(network) as backend:
        result = backend.evaluate(probe_batch(4))
    assert np.all(result.wdl[:, 1] == 0)
    assert np.abs(result.wdl.sum(axis=1) - 1).max() < 1e-6
    assert np.all(result.moves_left == 0)
    assert np.ptp(result.wdl[:, 0]) > 0


def test_rule_50_is_read_from_the_record(subject: Subject) -> None:
    batch = probe_batch(2)
    batch.positions[1] = batch.positions[0]
    batch.positions["rule50"] = [0, 80]
    with subject.open(random_network("tiny-attention")) as backend:
        result = backend.evaluate(batch)
    assert np.abs(result.logits[:35] - result.logits[35:]).max() > 0.01

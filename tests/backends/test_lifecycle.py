# SPDX-License-Identifier: GPL-3.0-or-later
"""Opening, sharing, closing."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from evaluator.backends import BackendError, available_backends
from evaluator.network.random_network import random_network
from tests.backends.batches import varied_batch
from tests.backends.subjects import Subject, assert_close, runnable


def test_as_many_threads_as_it_allows_get_their_own_results(subject: Subject) -> None:
    with subject.open(random_network("tiny-attention")) as backend:
        batches = [varied_batch(1 + index % 4, seed=index) for index in range(4 if subject.slow else 40)]
        expected = [backend.evaluate(batch) for batch in batches]
        # None of the threads is the one that opened it.
        with ThreadPoolExecutor(max_workers=backend.max_in_flight) as pool:
            results = list(pool.map(backend.evaluate, batches))
        for result, right in zip(results, expected, strict=True):
            assert_close(subject, backend, result, right)


def test_two_networks_side_by_side(quick_subject: Subject) -> None:
    networks = [random_network("tiny-attention"), random_network("tiny-resnet")]
    batch = varied_batch(3)
    alone = []
    for network in networks:
        with quick_subject.open(network) as backend:
            alone.append(backend.evaluate(batch))
    with quick_subject.open(networks[0]) as one, quick_subject.open(networks[1]) as other:
        together = [one.evaluate(batch), other.evaluate(batch)]
    for result, right in zip(together, alone, strict=True):
        assert np.array_equal(result.logits, right.logits)
        assert np.array_equal(result.wdl, right.wdl)


def test_closing_twice_is_allowed_and_nothing_works_after(subject: Subject) -> None:
    backend = subject.open(random_network("tiny-resnet"))
    batch = varied_batch(2)
    before = backend.evaluate(batch)
    backend.close()
    backend.close()
    try:
        after = backend.evaluate(batch)  # allowed to one that holds nothing
    except BackendError as error:
        assert "closed" in str(error)
    else:
        assert np.array_equal(after.logits, before.logits)


def test_an_unknown_option_is_refused_with_those_it_takes(quick_subject: Subject) -> None:
    with pytest.raises(BackendError, match="'colour'"):
        quick_subject.open(random_network("tiny-resnet"), colour="red")


def test_gpus_are_tested_where_there_are_any() -> None:
    """One skip in place of all those that a GPU's cases would be."""
    reason = available_backends()["gpu"]
    if reason is not None:
        pytest.skip(f"backend gpu: {reason}")
    assert {"gpu-fp16", "gpu-fp32", "gpu-deterministic"} <= set(runnable())

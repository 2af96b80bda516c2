# SPDX-License-Identifier: GPL-3.0-or-later
"""What is counted, and how often."""

import math
import threading
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.devices.metrics import BATCH_EDGES, FINE_TIME_EDGES, TIME_EDGES, Histogram, Metrics, Stalls
from tests.evaluator.states import STATE


@given(st.lists(st.integers(1, 5000)))
def test_histogram_counts_each_observation_below_its_edge(sizes: list[int]) -> None:
    histogram = Histogram(BATCH_EDGES)
    for size in sizes:
        histogram.observe(size)
    for index, edge in enumerate(BATCH_EDGES):
        assert sum(histogram.counts[: index + 1]) == sum(size <= edge for size in sizes)
    assert sum(histogram.counts) == len(sizes)
    assert histogram.sum == sum(sizes)


@given(st.lists(st.floats(0, 100), min_size=1))
def test_fewer_edges_count_as_if_they_alone_had_been_there(seconds: list[float]) -> None:
    fine, coarse = Histogram(FINE_TIME_EDGES), Histogram(TIME_EDGES)
    for value in seconds:
        fine.observe(value)
        coarse.observe(value)
    told = fine.coarser(TIME_EDGES)
    assert (told.edges, told.counts, told.sum) == (coarse.edges, coarse.counts, coarse.sum)


@given(st.lists(st.floats(0.0001, 30), min_size=1), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_as_exact_as_the_edges_are_close(seconds: list[float], share: float) -> None:
    histogram = Histogram(FINE_TIME_EDGES)
    for value in seconds:
        histogram.observe(value)
    exact = sorted(seconds)[math.ceil(share * len(seconds)) - 1]
    found = histogram.quantile(share)
    assert found is not None
    if exact <= FINE_TIME_EDGES[0]:
        assert found <= FINE_TIME_EDGES[0]
        return
    assert exact / 1.26 <= found <= 1.26 * exact


def test_quantiles_of_nothing_and_of_what_is_beyond_all_edges() -> None:
    histogram = Histogram(BATCH_EDGES)
    assert histogram.quantile(0.5) is None
    histogram.observe(1_000_000)
    assert histogram.quantile(0.5) == BATCH_EDGES[-1]


def test_metrics_difference_counts_only_later_events() -> None:
    histogram = Histogram(BATCH_EDGES)
    histogram.observe(3)
    before = deepcopy(histogram)
    histogram.observe(100)
    since = histogram.since(before)
    assert (sum(since.counts), since.sum, since.quantile(0.5)) == (1, 100, 96)


def test_nothing_is_lost_between_threads() -> None:
    metrics = Metrics()
    rounds, threads = 2000, 4

    def work() -> None:
        for _ in range(rounds):
            metrics.cancelled.add()
            metrics.batch("t82", "0:gpu", 3, 0.001)
            metrics.answered("t82", 0, 2, 0.5, 0.6)
            metrics.error("overloaded")

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    status = metrics.status(STATE)
    each = rounds * threads
    assert status["cancelled"] == status["batches"] == status["errors"]["overloaded"] == each
    assert status["positions"] == 3 * each
    assert status["classes"]["play"] == {"requests": each, "positions": 2 * each}
    assert status["batch_size"]["count"] == status["batch_size"]["4"] == each
    assert status["queue_ms"]["500"] == each


def test_the_status_is_in_milliseconds_and_holds_the_state() -> None:
    metrics = Metrics()
    metrics.batch("t82", "0:gpu", 4, 0.0125)
    metrics.batch("t82", "0:gpu", 2, 0.0025)
    metrics.answered("t82", 2, 6, 0.0004, 0.1)
    status = metrics.status(STATE)
    assert status["compute_ms_total"] == pytest.approx(15)
    assert status["mean_batch"] == 3
    assert (status["queue_ms"]["0.5"], status["queue_ms"]["sum"]) == (1, 0.4)
    assert status["device_memory"] == {"0:gpu": {"used": 3, "total": 5}}
    assert (status["ready"], status["clients"], status["queued_positions"]) == (True, 2, 7)


def test_class_is_stalled_when_it_has_queued_work_and_no_answers() -> None:
    stalls, targets = Stalls(), {"play": 100.0, "analysis": 1000.0, "selfplay": 1000.0}
    idle = dict.fromkeys(targets, 0)
    queued = idle | {"play": 5}
    assert not stalls.look(0.0, idle, queued, targets)
    assert not stalls.look(0.9, idle, queued, targets)
    assert "play" in stalls.look(1.1, idle, queued, targets)
    assert not stalls.look(1.2, idle | {"play": 1}, queued, targets), "an answer came"
    assert "play" in stalls.look(2.3, idle | {"play": 1}, queued, targets)
    assert not stalls.look(2.4, idle | {"play": 1}, idle, targets), "nothing is queued"

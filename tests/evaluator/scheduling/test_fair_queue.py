# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of a class against a sorted list, and the work that it and the policy do when it is long."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.batching.simulation import curve_model
from evaluator.scheduling.batching import BatchPolicy
from evaluator.scheduling.fair_queue import HURRIED_SHARE, FairQueue
from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Scheduler
from tests.evaluator.service.echo import numbered_batch

BATCHES = {count: numbered_batch(count) for count in (1, 2, 3, 5, 8)}


def request(client: int, identity: int, count: int = 1, rank: int = 2, arrived: float = 0.0) -> Request:
    return Request(client, identity, BATCHES[count], rank, arrived)


def in_order(queued: list[Request]) -> list[Request]:
    return sorted(queued, key=lambda each: each.place)


@settings(max_examples=60)
@given(st.data())
def test_it_does_what_a_sorted_list_does(data: st.DataObject) -> None:
    queue = FairQueue(2)
    queued: list[Request] = []
    for step in range(data.draw(st.integers(1, 40))):
        what = data.draw(st.sampled_from(["add", "add", "many", "take", "remove"]))
        if what in ("add", "many"):
            for index in range(1 if what == "add" else 30):
                count = data.draw(st.sampled_from(sorted(BATCHES))) if what == "add" else 1 + index % 3
                each = request(index % 7, 1000 * step + index, count, arrived=float(step))
                queue.add(each)
                queued.append(each)
        elif what == "remove" and queued:
            gone = data.draw(st.sampled_from(queued))
            queue.remove(gone)
            queued.remove(gone)
        elif what == "take":
            total = sum(each.count - each.taken for each in queued)
            positions, skip = data.draw(st.integers(1, 60)), data.draw(st.integers(0, 20))
            expected: list[tuple[int, int]] = []
            passed, left = skip, positions
            for each in in_order(queued):
                size = min(left, max(0, each.count - each.taken - passed))
                passed = max(0, passed - (each.count - each.taken))
                if size:
                    expected.append((each.id, size))
                    left -= size
            segments = queue.take(positions, skip)
            assert [(each.request.id, each.stop - each.start) for each in segments] == expected
            assert sum(size for _, size in expected) == max(0, min(positions, total - skip))
            queued = [each for each in queued if each.taken < each.count]
        assert list(queue) == in_order(queued)
        assert queue.positions == sum(each.count - each.taken for each in queued)
        runs = queue.describe(10**9, 0, 0)
        assert sum(run.positions for run in runs) == queue.positions
        assert sum(run.requests for run in runs) == len(queued)
        if queued:
            assert min(run.arrived_ms for run in runs) == min(each.arrived_ms for each in queued)
            assert queue.first is in_order(queued)[0]


def test_the_first_requests_are_described_one_by_one() -> None:
    queue = FairQueue(0)
    for identity in range(200):
        queue.add(request(identity, identity))
    runs = queue.describe(1000, 0, 0)
    assert [run.positions for run in runs[:16]] == [1] * 16
    assert len(runs) < 100
    reached = 0
    for run in runs:
        reached += run.positions
        assert run.requests == 1 or run.positions <= 0.1 * reached


def test_positions_that_are_skipped_are_not_described() -> None:
    queue = FairQueue(0)
    for identity, count in ((1, 5), (2, 3), (3, 8)):
        queue.add(request(identity, identity, count))
    assert [run.positions for run in queue.describe(100, 6, 0)] == [2, 8]
    assert [run.positions for run in queue.describe(100, 16, 0)] == []


def test_positions_ahead_are_those_with_an_earlier_place() -> None:
    queue = FairQueue(0)
    for identity in range(100):
        queue.add(request(1, identity, 2))
    assert queue.before(queue.turns.tag_of(request(1, 100, 2))) == 200
    assert queue.before(queue.turns.tag_of(request(2, 100, 2))) == 2  # the same tag, and came before
    assert queue.before(queue.turns.tag_of(request(2, 100, 1))) == 0


def lines_run(work: Callable[[], Any]) -> int:
    """How many lines of Python a call executes: a measure of work that no other program changes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.integration
@pytest.mark.parametrize("clients", [1, 64, 65536])
@pytest.mark.parametrize("rank", [0, 2])
def test_decision_costs_the_same_when_the_queue_is_long(rank: int, clients: int) -> None:
    model = curve_model("h200-t82")
    policy = BatchPolicy(model)

    def work(queued: int) -> int:
        scheduler = Scheduler()
        for identity in range(queued):
            scheduler.add(request(identity % clients, identity, rank=rank))
        lines = lines_run(lambda: policy.decide(scheduler.pending(model.max_batch), 1.0))
        lines += lines_run(lambda: scheduler.add(request(10**6, 10**6, rank=rank)))
        lines += lines_run(lambda: scheduler.remove_client(10**6))
        lines += lines_run(lambda: scheduler.take(256, 1.0))
        assert scheduler.positions == queued - 256
        return lines

    assert work(65536) <= 1.2 * work(2 * model.max_batch)


def test_a_hurried_client_gets_at_most_its_shares() -> None:
    """Two clients keep the queue full; one of them hurries."""
    queue, served = FairQueue(0), [0, 0]
    for identity in range(600):
        for client in (0, 1):
            made = request(client, identity, 8, rank=0)
            made.target_ms = 10.0 if client == 0 else None
            queue.add(made)
        for segment in queue.take(8):
            served[int(str(segment.request.client))] += segment.stop - segment.start
    assert served[0] / served[1] == pytest.approx(HURRIED_SHARE, rel=0.05)

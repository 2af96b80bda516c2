# SPDX-License-Identifier: GPL-3.0-or-later
"""The queues: order, fairness, starvation, deadlines, cutting and putting together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.scheduling.requests import Request, distribute, parts_of
from evaluator.scheduling.scheduler import GUARANTEED_SHARE, REMEMBERED_MS, Scheduler
from protocol.batch import PositionBatch
from tests.evaluator.service.echo import expected, numbered_batch, same
from tests.rounds import rounds


def request(
    client: str, identity: int, count: int, rank: int = 0, arrived: float = 0.0, deadline: float | None = None
) -> Request:
    batch = numbered_batch(count, first=1000 * identity, seed=identity)
    return Request(client, identity, batch, rank, arrived, deadline)


def rank_of(scheduler: Scheduler) -> int | None:
    """The class of the next request; -1 if it is owed time."""
    urgency = scheduler.urgency()
    return None if urgency is None else urgency[0]


def taken(scheduler: Scheduler, positions: int, now: float = 0.0) -> list[tuple[int, int, int]]:
    return [(s.request.id, s.start, s.stop) for s in scheduler.take(positions, now)]


def test_classes_go_in_order() -> None:
    scheduler = Scheduler()
    for identity, rank in ((1, 2), (2, 1), (3, 0)):
        scheduler.add(request("a", identity, 2, rank))
    assert taken(scheduler, 6) == [(3, 0, 2), (2, 0, 2), (1, 0, 2)]
    assert len(scheduler) == scheduler.positions == 0


def test_a_class_is_owed_a_share_of_what_others_take() -> None:
    scheduler = Scheduler()
    for identity in range(1, 101):
        scheduler.add(request("player", identity, 1))
    scheduler.add(request("games", 1000, 4, 2))
    served = 0
    while rank_of(scheduler) != -1:
        scheduler.ran(1.0, scheduler.take(1, 0.0))
        served += 1
    assert served == 1  # At once: self-play has had nothing yet.
    segments = scheduler.take(2, 0.0)
    assert [segment.request.id for segment in segments] == [1000]
    scheduler.ran(1.0, segments)
    while rank_of(scheduler) != -1:
        scheduler.ran(1.0, scheduler.take(1, 0.0))
        served += 1
    assert served == pytest.approx(1 / GUARANTEED_SHARE, abs=1)


def test_the_age_of_a_request_does_not_put_it_before_play() -> None:
    scheduler = Scheduler()
    scheduler.add(request("games", 1, 2, 2, arrived=0.0))
    scheduler.add(request("engine", 2, 2, 0, arrived=1e6))
    assert rank_of(scheduler) == 0
    assert taken(scheduler, 4, 1e6) == [(2, 0, 2), (1, 0, 2)]


def test_a_class_that_had_the_device_for_long_is_not_owed_at_once() -> None:
    scheduler = Scheduler()
    for identity in range(1, 1001):
        scheduler.add(request("games", identity, 1, 2))
    for _ in range(900):
        scheduler.ran(1.0, scheduler.take(1, 0.0))
    scheduler.add(request("engine", 2000, 4))
    served = 0.0
    while rank_of(scheduler) == 0:
        scheduler.ran(1.0, ())
        served += 1.0
    assert REMEMBERED_MS / GUARANTEED_SHARE <= served <= REMEMBERED_MS / GUARANTEED_SHARE + 2


def test_a_class_earns_nothing_while_it_has_nothing_queued() -> None:
    scheduler = Scheduler()
    scheduler.ran(1000.0, ())
    scheduler.add(request("games", 1, 2, 2))
    scheduler.add(request("engine", 2, 2))
    assert rank_of(scheduler) == 0


def test_clients_of_a_class_share_by_positions() -> None:
    scheduler = Scheduler()
    for identity in range(1, 5):
        scheduler.add(request("big", identity, 8))
    for identity in range(11, 19):
        scheduler.add(request("small", identity, 2))
    served = {"big": 0, "small": 0}
    for segment in scheduler.take(16, 0.0):
        served[str(segment.request.client)] += segment.stop - segment.start
    assert served == {"big": 8, "small": 8}


def test_a_deadline_counts_until_the_launch() -> None:
    scheduler = Scheduler()
    scheduler.add(request("a", 1, 2, deadline=5.0))
    scheduler.add(request("b", 2, 2, deadline=10.0))
    assert scheduler.next_deadline_ms() == 5.0
    assert taken(scheduler, 2) == [(1, 0, 2)]
    assert scheduler.next_deadline_ms() == 10.0
    assert scheduler.expire(9.9) == []
    assert [expired.id for expired in scheduler.expire(10.0)] == [2]
    assert scheduler.positions == 0


def test_a_removed_request_is_not_taken() -> None:
    scheduler = Scheduler()
    first, second = request("a", 1, 2), request("a", 2, 3)
    scheduler.add(first)
    scheduler.add(second)
    scheduler.remove(first)
    assert first.closed
    assert taken(scheduler, 9) == [(2, 0, 3)]


def test_a_client_that_left_leaves_nothing() -> None:
    scheduler = Scheduler()
    for identity in (1, 2, 3):
        scheduler.add(request("gone" if identity < 3 else "here", identity, 2, rank=identity - 1))
    assert len(scheduler.remove_client("gone")) == 2
    assert taken(scheduler, 9) == [(3, 0, 2)]


def test_a_single_whole_request_is_passed_on_without_copying() -> None:
    scheduler = Scheduler()
    whole = request("a", 1, 5)
    scheduler.add(whole)
    assert PositionBatch.concatenate(parts_of(scheduler.take(5, 0.0))) is whole.batch


@settings(max_examples=rounds(100))
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 2)), min_size=1, max_size=12
    ),
    st.lists(st.integers(1, 11), min_size=1, max_size=8),
)
def test_everyone_gets_his_own_however_cut(sent: list[tuple[str, int, int]], cuts: list[int]) -> None:
    scheduler = Scheduler()
    requests = [request(client, index + 1, count, rank) for index, (client, count, rank) in enumerate(sent)]
    for each in requests:
        scheduler.add(each)
    complete: list[Request] = []
    step = 0
    while scheduler.positions:
        segments = scheduler.take(cuts[step % len(cuts)], 0.0)
        step += 1
        batch = PositionBatch.concatenate(parts_of(segments))
        assert len(batch) <= cuts[(step - 1) % len(cuts)]
        assert batch.move_offsets[0] == 0
        assert batch.move_offsets[-1] == len(batch.moves)
        complete += distribute(segments, expected(batch))
    assert sorted(each.id for each in complete) == [each.id for each in requests]
    for each in requests:
        assert each.parts is not None
        assert same(each.parts, expected(each.batch))
        assert np.isfinite(each.parts.wdl).all()

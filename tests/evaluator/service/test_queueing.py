# SPDX-License-Identifier: GPL-3.0-or-later
"""How the requests of several clients share the devices: merging, cutting, order, deadlines and limits."""

from pathlib import Path

import pytest

from evaluator.scheduling.scheduler import QueueLimits
from evaluator.service.connections.limits import ConnectionLimits
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import DeadlineExceeded, Overloaded
from protocol.wire.messages import Priority, best_rate
from tests.evaluator.service.echo import WAIT_S, EchoBackend, expected, numbered_batch, same
from tests.evaluator.service.harness import Harness, answers, received, running, serving


def drain_all(client: EvaluatorClient, count: int) -> None:
    for _ in range(count):
        received(client)


def test_requests_of_several_clients_are_merged_into_one_batch(harness: Harness) -> None:
    first, *others = [harness.client() for _ in range(4)]
    harness.backend.hold()
    first.submit(numbered_batch(3))
    harness.backend.wait_entered()
    batches = [numbered_batch(4 + index, first=100 * index, seed=index) for index in range(3)]
    for client, batch in zip(others, batches, strict=True):
        client.submit(batch)
        client.ping()  # the service takes in the messages of a client in order
    harness.backend.gate.set()
    for client, batch in zip(others, batches, strict=True):
        completed = received(client)
        assert completed.batch_rode == 15
        assert same(completed.result(), expected(batch))
    assert harness.backend.sizes == [3, 15]


@pytest.mark.parametrize(
    ("priority", "target_ms", "first"),
    [("play", 5.0, "late"), ("play", None, "early"), ("play", 80.0, "early"), ("analysis", 5.0, "early")],
)
def test_a_request_of_play_that_wants_a_short_latency_goes_first(
    tmp_path: Path, priority: Priority, target_ms: float | None, first: str
) -> None:
    """The target counts below that of the class (50 ms). The device takes one of the requests at a time."""
    with running(tmp_path, make=lambda name: EchoBackend(max_batch=8)) as harness:
        blocking, early, late = (harness.client() for _ in range(3))
        batches = {"early": numbered_batch(8, first=100), "late": numbered_batch(8, first=200)}
        order: list[str] = []

        def answer(batch: PositionBatch) -> EvaluationBatch:
            data = batch.positions.tobytes()
            order.extend(name for name, each in batches.items() if each.positions.tobytes() == data)
            return expected(batch)

        harness.backend.answer = answer
        harness.backend.hold()
        blocking.submit(numbered_batch(8))
        harness.backend.wait_entered()
        early.submit(batches["early"], priority=priority)
        early.ping()  # the service takes in the messages of a client in order
        late.submit(batches["late"], priority=priority, target_ms=target_ms)
        late.ping()
        harness.backend.gate.set()
        for client in (early, late):
            assert client.receive(WAIT_S * 1000) is not None
        assert order[0] == first and len(order) == 2


def test_request_is_split_and_joined_when_larger_than_a_batch(tmp_path: Path) -> None:
    with running(tmp_path, make=lambda name: EchoBackend(max_batch=16)) as harness:
        harness.backend.sizes.clear()
        assert answers(harness.client(), 53)
        assert sum(harness.backend.sizes) == 53
        assert max(harness.backend.sizes) <= 16


def test_clients_get_one_description_of_all_devices(tmp_path: Path) -> None:
    with running(tmp_path) as alone:
        one = alone.client().network
    with running(tmp_path, backends=("first", "second")) as both:
        client = both.client()
        two = client.network
        assert (one.devices, two.devices) == (1, 2)
        assert two.recommended_batch == 2 * one.recommended_batch
        assert best_rate(two.curve) > 1.8 * best_rate(one.curve)
        assert two.device == "2 x test"
        assert client.status().networks[0].devices == 2


def test_one_request_is_cut_over_devices_that_are_idle(tmp_path: Path) -> None:
    with serving(tmp_path, backends=("first", "second")) as (harness, client):
        for backend in harness.backends:
            backend.hold()
        batch = numbered_batch(1000)
        client.submit(batch)
        for backend in harness.backends:
            backend.wait_entered()
        sizes = [size for backend in harness.backends for size in backend.sizes]
        assert sum(sizes) == 1000
        assert min(sizes) > 400
        for backend in harness.backends:
            backend.gate.set()
        completed = received(client)
        assert completed.evaluation is not None
        assert same(completed.evaluation, expected(batch))


def test_a_deadline_that_passes_in_the_queue_is_an_error(harness: Harness) -> None:
    client = harness.client()
    harness.occupy(client, 4)
    late = client.submit(numbered_batch(4), deadline_ms=5)
    completed = received(client)
    assert completed.id == late
    with pytest.raises(DeadlineExceeded):
        completed.result()
    harness.backend.gate.set()
    drain_all(client, 1)
    assert harness.backend.sizes == [4]


def test_request_is_refused_when_it_would_miss_its_deadline(tmp_path: Path) -> None:
    deep, wide = QueueLimits(selfplay=10**6, client=10**6), ConnectionLimits(client_bytes=10**9)
    with running(tmp_path, limits=deep, connections=wide) as harness:
        games = harness.client()
        large, small = numbered_batch(4096), numbered_batch(8)
        harness.backend.hold()
        for _ in range(16):  # 65,536 positions: 0.13 s by the curve.
            games.submit(large, priority="selfplay")
        patient = games.submit(small, priority="selfplay", deadline_ms=60_000)
        hasty = games.submit(small, priority="selfplay", deadline_ms=50)
        completed = received(games)
        assert completed.id == hasty
        assert isinstance(completed.error, DeadlineExceeded)
        assert "longer than its deadline" in str(completed.error)
        played = games.submit(small, deadline_ms=60_000)  # Play goes before all that.
        harness.backend.gate.set()
        answers = [games.receive(WAIT_S * 1000) for _ in range(18)]
        served = {answer.id for answer in answers if answer is not None and answer.error is None}
        assert served >= {patient, played}


def test_a_full_queue_is_overloaded_and_recovers(tmp_path: Path) -> None:
    with serving(tmp_path, limits=QueueLimits(play=10)) as (harness, client):
        harness.occupy(client, 8)
        client.submit(numbered_batch(8))
        refused = client.submit(numbered_batch(8))
        completed = received(client)
        assert completed.id == refused
        assert isinstance(completed.error, Overloaded)
        harness.backend.gate.set()
        drain_all(client, 2)
        assert len(client.evaluate(numbered_batch(8))) == 8


def test_selfplay_that_fills_its_queue_keeps_no_play_out(tmp_path: Path) -> None:
    with running(tmp_path, limits=QueueLimits(play=16, selfplay=16)) as harness:
        games, engine = harness.client(), harness.client()
        harness.backend.hold()
        games.submit(numbered_batch(8), priority="selfplay")
        harness.backend.wait_entered()
        for _ in range(2):
            games.submit(numbered_batch(8), priority="selfplay")
        refused = games.submit(numbered_batch(8), priority="selfplay")
        completed = received(games)
        assert completed.id == refused
        assert isinstance(completed.error, Overloaded)
        assert "16 positions of class selfplay are queued, of at most 16" in str(completed.error)
        played = engine.submit(numbered_batch(8))
        harness.backend.gate.set()
        completed = received(engine)
        assert completed.id == played
        assert completed.error is None


def test_a_client_that_hoards_is_overloaded_alone(tmp_path: Path) -> None:
    with running(tmp_path, limits=QueueLimits(client=10)) as harness:
        greedy, modest = harness.client(), harness.client()
        harness.backend.hold()
        greedy.submit(numbered_batch(8))
        harness.backend.wait_entered()
        greedy.submit(numbered_batch(8))
        completed = received(greedy)
        assert isinstance(completed.error, Overloaded)
        modest.submit(numbered_batch(8))
        modest.ping()
        harness.backend.gate.set()
        drain_all(modest, 1)

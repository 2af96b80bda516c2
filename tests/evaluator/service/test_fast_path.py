# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations without the interpreter: when, and what becomes of them when something else comes or fails."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evaluator.devices.running.watchdog import Patience
from evaluator.service import fast_path
from evaluator.service.connections import hub_sockets
from evaluator.service.fast_path import IN_A_ROW
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.errors import BadRequest, DuplicateId, UnknownNetwork
from protocol.wire.codec import decode_reply, encode_evaluate
from protocol.wire.messages import Error, Result
from tests.evaluator.service.echo import WAIT_S, expected, numbered_batch, same
from tests.evaluator.service.harness import Harness, received, running
from tests.evaluator.service.leasing import Held, LeasingBackend

pytestmark = pytest.mark.skipif(not hub_sockets.AVAILABLE, reason="there is no such path here")


@contextlib.contextmanager
def private(folder: Path, **options: object) -> Iterator[Harness]:
    with running(folder, private=True, make=lambda name: LeasingBackend(), **options) as harness:  # type: ignore[arg-type]
        yield harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with private(tmp_path) as harness:
        yield harness


def backend_of(harness: Harness) -> LeasingBackend:
    backend = harness.backend
    assert isinstance(backend, LeasingBackend)
    return backend


def accustom(client: EvaluatorClient) -> None:
    """Ask alone for as many evaluations as it takes."""
    for _ in range(IN_A_ROW):
        client.evaluate(numbered_batch(1))


def accustomed(harness: Harness) -> tuple[EvaluatorClient, LeasingBackend]:
    client = harness.client()
    accustom(client)
    return client, backend_of(harness)


def receive(client: EvaluatorClient, submitted: dict[int, PositionBatch]) -> None:
    """The answers of all that was submitted, each the right one."""
    while submitted:
        completed = received(client)
        assert same(completed.result(), expected(submitted.pop(completed.id)))


def submitted(client: EvaluatorClient, sizes: list[int]) -> dict[int, PositionBatch]:
    batches = [numbered_batch(size, first=100 * number) for number, size in enumerate(sizes)]
    return {client.submit(batch): batch for batch in batches}


def test_a_client_that_is_alone_is_served_without_the_interpreter(harness: Harness) -> None:
    client, backend = accustomed(harness)
    assert not backend.direct
    for size in (1, 2, 7, 32):
        receive(client, submitted(client, [size]))
    assert backend.direct == [1, 2, 7, 32]


def test_each_size_has_a_program_of_its_own(harness: Harness) -> None:
    """A small batch is not run by the program of a larger one, which takes longer."""
    client, backend = accustomed(harness)
    for size in (32, 2, 32, 7, 2):
        receive(client, submitted(client, [size]))
    assert backend.asked == [32, 32, 2, 2, 7, 7]


def test_two_batches_are_on_the_device_at_a_time(harness: Harness) -> None:
    client, backend = accustomed(harness)
    held = backend.done = Held()
    sent = submitted(client, [3, 4])
    held.wait_asked()
    held.over.set()
    receive(client, sent)
    assert backend.direct == [3, 4]


def test_simultaneous_requests_are_merged_as_usual(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "CROWDED_S", WAIT_S)
    client, backend = accustomed(harness)
    receive(client, submitted(client, [3]))
    held = backend.done = Held()
    sent = submitted(client, [3] * 5)
    held.wait_asked(20)  # the loop looks at the socket as often
    held.over.set()
    receive(client, sent)
    assert backend.direct == [3] * 3
    assert sum(backend.sizes) == IN_A_ROW + 9
    receive(client, submitted(client, [3]))  # and so are the next ones
    assert backend.direct == [3] * 3


def test_answers_are_counted(harness: Harness) -> None:
    client = harness.client()
    accustom(client)
    sizes = [2] * 20
    for size in sizes:
        receive(client, submitted(client, [size]))
    status = client.status()
    metrics = status.metrics
    assert metrics["batches"] == IN_A_ROW + len(sizes)
    assert metrics["positions"] == IN_A_ROW + sum(sizes)
    assert metrics["classes"]["play"] == {"requests": IN_A_ROW + 20, "positions": IN_A_ROW + 40}
    assert metrics["batch_size"]["2"] == 20
    (listed,) = client.clients()
    assert listed["requests"] == IN_A_ROW + 20
    assert listed["positions"] == IN_A_ROW + 40


def test_a_result_says_what_results_say(harness: Harness) -> None:
    client = harness.client()
    accustom(client)
    identity = client.submit(numbered_batch(5), priority="analysis")
    completed = received(client)
    assert completed.id == identity
    assert completed.batch_rode == 5
    assert completed.queue_ms >= 0 and completed.compute_ms > 0
    assert client.status().metrics["classes"]["analysis"]["positions"] == 5


def test_another_client_is_served_in_the_middle(harness: Harness) -> None:
    client, other, backend = harness.client(), harness.client(), backend_of(harness)
    accustom(client)
    held = backend.done = Held()
    sent = submitted(client, [3, 4])
    held.wait_asked()
    others = submitted(other, [6, 7])
    held.over.set()
    receive(other, others)
    receive(client, sent)
    other.ping()
    client.ping()


def test_clients_that_ask_in_turns_go_the_usual_way(harness: Harness) -> None:
    clients, backend = [harness.client(), harness.client()], backend_of(harness)
    for number in range(3 * IN_A_ROW):
        receive(clients[number % 2], submitted(clients[number % 2], [4]))
    assert not backend.direct


def test_requests_that_are_too_large_or_unusual_go_the_usual_way(harness: Harness) -> None:
    client, backend = accustomed(harness)
    receive(client, submitted(client, [1]))
    identity = client.submit(numbered_batch(3), deadline_ms=1e6)
    receive(client, {identity: numbered_batch(3)})
    large = numbered_batch(70)
    receive(client, {client.submit(large): large})
    assert backend.direct == [1]
    receive(client, submitted(client, [2]))
    assert backend.direct == [1, 2]


def test_names_of_the_network_are_known(harness: Harness) -> None:
    client, backend = accustomed(harness)
    info = client.network
    for name in (info.name, info.content_hash, "default"):
        if name:
            batch = numbered_batch(2)
            receive(client, {client.submit(batch, network=name): batch})
    assert len(backend.direct) >= 2
    identity = client.submit(numbered_batch(2), network="another")
    completed = received(client)
    assert completed.id == identity
    assert isinstance(completed.error, UnknownNetwork)


def test_broken_requests_are_refused_and_the_others_answered(harness: Harness) -> None:
    client, backend = accustomed(harness)
    held = backend.done = Held()
    good = submitted(client, [3])
    held.wait_asked()
    broken = numbered_batch(2)
    broken.moves[0] = 5000
    identity = client.submit(broken)
    held.over.set()
    receive(client, good)
    completed = received(client)
    assert completed.id == identity
    assert isinstance(completed.error, BadRequest)
    receive(client, submitted(client, [4]))


def test_an_id_that_is_in_flight_is_not_taken_twice(harness: Harness) -> None:
    client, backend = accustomed(harness)
    held = backend.done = Held()
    batch = numbered_batch(3)
    identity = client.submit(batch)
    held.wait_asked()
    connection = client._connection
    assert connection is not None
    connection.send(encode_evaluate(identity, numbered_batch(1), "play", None, ""))
    answers = []
    held.over.set()
    for _ in range(2):
        frames = connection.receive(None)
        assert frames is not None
        answers.append(decode_reply(frames))
    kinds = {type(answer) for answer in answers}
    assert kinds == {Result} or kinds == {Result, Error}
    for answer in answers:
        if isinstance(answer, Error):
            assert answer.code == DuplicateId.code


def test_a_client_that_leaves_disturbs_nobody(harness: Harness) -> None:
    client, backend = accustomed(harness)
    held = backend.done = Held()
    submitted(client, [3, 4])
    held.wait_asked()
    client.close()
    held.over.set()
    other = harness.client()
    receive(other, submitted(other, [5]))
    accustom(other)
    receive(other, submitted(other, [6]))
    assert backend.direct[-1] == 6


def test_programs_of_another_version_are_made_anew(harness: Harness) -> None:
    client, backend = accustomed(harness)
    receive(client, submitted(client, [3]))
    backend.version += 1
    client.status()  # the run is over
    receive(client, submitted(client, [4, 5]))
    assert backend.direct == [3, 4, 5]


def nan(batch: PositionBatch) -> EvaluationBatch:
    evaluation = expected(batch)
    evaluation.logits[-1] = np.nan
    return evaluation


def test_a_batch_is_evaluated_again_when_its_output_is_no_number(harness: Harness) -> None:
    client, backend = accustomed(harness)
    backend.computed = nan
    backend.sizes.clear()
    receive(client, submitted(client, [3, 4]))
    assert backend.direct[0] == 3
    assert sorted(backend.sizes)[:2] in ([3, 4], [7])
    assert backend.released.wait(WAIT_S)


def test_a_driver_that_fails_has_its_batches_run_the_usual_way(harness: Harness) -> None:
    client, backend = accustomed(harness)
    backend.queue = lambda: 719
    receive(client, submitted(client, [3, 4]))
    assert backend.direct == [3]
    for _ in range(5):  # and so do the next
        receive(client, submitted(client, [2]))
    assert backend.direct == [3]


def test_late_device_gets_batches_the_usual_way(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "LATE_MS", 20.0)
    client, backend = accustomed(harness)
    held = backend.done = Held()
    sent = submitted(client, [3, 4])
    receive(client, sent)
    assert not backend.released.is_set()  # the device may still write into them
    held.over.set()
    assert backend.released.wait(WAIT_S)


def test_driver_that_does_not_return_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path, "LATE_MS", 50.0)
    with private(tmp_path, patience=Patience(hang_s=0.2)) as harness:
        client, other, backend = harness.client(), harness.client(), backend_of(harness)
        accustom(client)
        stuck = threading.Event()
        entered = threading.Event()

        def hang() -> int:
            entered.set()
            stuck.wait(WAIT_S)
            return 0

        backend.queue = hang
        sent = submitted(client, [3, 4])
        assert entered.wait(WAIT_S)
        receive(client, sent)  # by `evaluate`, which does not hang here
        receive(other, submitted(other, [5]))
        other.ping()
        backend.queue = lambda: 0
        stuck.set()
        assert backend.released.wait(WAIT_S)
        receive(client, submitted(client, [6]))
        other.ping()


def test_a_service_that_drains_answers_what_is_in_flight(harness: Harness) -> None:
    client, backend = accustomed(harness)
    held = backend.done = Held()
    sent = submitted(client, [3, 4])
    held.wait_asked()
    harness.service.drain()
    held.over.set()
    receive(client, sent)
    harness.thread.join(WAIT_S)
    assert not harness.thread.is_alive()


def test_a_network_that_is_unloaded_is_not_closed_in_flight(tmp_path: Path) -> None:
    with private(tmp_path, networks=2) as harness:
        client, other, backend = harness.client(), harness.client(), backend_of(harness)
        accustom(client)
        held = backend.done = Held()
        sent = submitted(client, [3, 4])
        held.wait_asked()
        thread = threading.Thread(target=other.unload, args=(client.network.name,))
        thread.start()
        assert not backend.closed
        held.over.set()
        receive(client, sent)
        thread.join(WAIT_S)
        assert backend.was_closed.wait(WAIT_S)

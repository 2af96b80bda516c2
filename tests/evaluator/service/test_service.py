"""The service on real sockets: handshake, merging, order, limits, cancelling, draining, several networks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from evaluator.devices.runners import now_ms
from evaluator.devices.served_network import ServedNetwork
from evaluator.scheduling.admission import QueueLimits
from evaluator.service import gate
from evaluator.service import service as service_module
from evaluator.service.gate import ConnectionLimits
from protocol import EvaluatorClient
from protocol.codec import decode_reply, encode
from protocol.errors import (
    BadRequest,
    DeadlineExceeded,
    Draining,
    EvaluatorLost,
    LoadFailed,
    NotReady,
    Overloaded,
    RemoteError,
    TooLarge,
    UnknownNetwork,
)
from protocol.messages import Evaluate, Hello, Ping, Welcome, best_rate
from protocol.multipart import send
from tests.evaluator.service.harness import (
    WAIT_S,
    EchoBackend,
    Harness,
    expected,
    foreign_client,
    numbered_batch,
    running,
    same,
)
from tests.evaluator.zmtp import connect, message
from tests.paths import DATA


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with running(tmp_path) as running_harness:
        yield running_harness


def raw_exchange(address: str, frames: list[bytes], timeout_ms: int = 20000) -> dict[str, object]:
    """Send frames as no EvaluatorClient would, and return the header of the answer."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(address)
        dealer.send_multipart(frames)
        assert dealer.poll(timeout_ms), "no answer"
        header = msgpack.unpackb(dealer.recv_multipart()[0])
        assert isinstance(header, dict)
        return header


def drain_all(client: object, count: int) -> None:
    for _ in range(count):
        completed = client.receive(WAIT_S * 1000)  # type: ignore[attr-defined]
        assert completed is not None


def test_welcome_describes_the_networks(harness: Harness) -> None:
    client = harness.client(name="test")
    assert client.version == 1
    assert client.network.name == "echo"
    assert client.network.recommended_batch == client.recommended_batch >= 1
    assert client.curve[0][0] == 1
    assert client.max_batch == 4096


def test_a_version_that_nobody_speaks_is_refused_by_name(harness: Harness) -> None:
    reply = raw_exchange(harness.address, [msgpack.packb({"type": "hello", "id": 1, "versions": [7, 8]})])
    assert (reply["type"], reply["code"], reply["id"]) == ("error", "unsupported_version", 1)


def test_a_newer_client_that_also_speaks_version_1_is_welcome(harness: Harness) -> None:
    reply = raw_exchange(harness.address, [msgpack.packb({"type": "hello", "id": 1, "versions": [1, 2]})])
    assert (reply["type"], reply["version"]) == ("welcome", 1)


def test_evaluations_come_back_in_the_order_of_the_positions(harness: Harness) -> None:
    batch = numbered_batch(37)
    assert same(harness.client().evaluate(batch), expected(batch))


def test_a_completion_says_when_and_in_what_it_rode(harness: Harness) -> None:
    client = harness.client()
    identity = client.submit(numbered_batch(5))
    completed = client.receive(WAIT_S * 1000)
    assert completed is not None
    assert completed.id == identity
    assert completed.batch_rode == 5
    assert completed.queue_ms >= 0
    assert completed.compute_ms > 0
    assert client.receive(0) is None


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
        completed = client.receive(WAIT_S * 1000)
        assert completed is not None
        assert completed.batch_rode == 15
        assert same(completed.result(), expected(batch))
    assert harness.backend.sizes == [3, 15]


def test_a_request_larger_than_the_device_takes_is_cut_and_put_together_again(tmp_path: Path) -> None:
    with running(tmp_path, make=lambda name: EchoBackend(max_batch=16)) as harness:
        harness.backend.sizes.clear()
        batch = numbered_batch(53)
        assert same(harness.client().evaluate(batch), expected(batch))
        assert sum(harness.backend.sizes) == 53
        assert max(harness.backend.sizes) <= 16


def test_play_goes_before_analysis_before_selfplay(tmp_path: Path) -> None:
    with running(tmp_path, make=lambda name: EchoBackend(max_batch=8)) as harness:
        client = harness.client()
        harness.backend.hold()
        client.submit(numbered_batch(8))
        harness.backend.wait_entered()
        selfplay = client.submit(numbered_batch(8), priority="selfplay")
        analysis = client.submit(numbered_batch(8), priority="analysis")
        play = client.submit(numbered_batch(8), priority="play")
        client.ping()
        harness.backend.gate.set()
        drain_first = client.receive(WAIT_S * 1000)
        assert drain_first is not None
        order = [client.receive(WAIT_S * 1000) for _ in range(3)]
        assert [completed.id for completed in order if completed is not None] == [play, analysis, selfplay]


def test_a_client_with_one_request_overtakes_a_client_with_many(tmp_path: Path) -> None:
    with running(tmp_path, make=lambda name: EchoBackend(max_batch=8)) as harness:
        greedy, modest = harness.client(), harness.client()
        harness.backend.hold()
        greedy.submit(numbered_batch(8))
        harness.backend.wait_entered()
        for index in range(6):
            greedy.submit(numbered_batch(8, first=1000 + index))
        greedy.ping()
        modest.submit(numbered_batch(8, first=7))
        modest.ping()
        seen: list[float] = []
        echo = harness.backend.answer
        harness.backend.answer = lambda batch: seen.append(batch.positions["rule50"][0]) or echo(batch)  # type: ignore[func-returns-value]
        harness.backend.gate.set()
        drain_all(greedy, 7)
        drain_all(modest, 1)
        # One batch was running, one of the greedy client's came first; then it is the other one's turn.
        assert 7.0 in seen[:3]


def test_a_deadline_that_passes_in_the_queue_is_an_error(harness: Harness) -> None:
    client = harness.client()
    harness.backend.hold()
    client.submit(numbered_batch(4))
    harness.backend.wait_entered()
    late = client.submit(numbered_batch(4), deadline_ms=5)
    completed = client.receive(WAIT_S * 1000)
    assert completed is not None
    assert completed.id == late
    with pytest.raises(DeadlineExceeded):
        completed.result()
    harness.backend.gate.set()
    drain_all(client, 1)
    assert harness.backend.sizes == [4]


def test_a_deadline_that_has_passed_on_arrival_is_an_error(harness: Harness) -> None:
    with pytest.raises(DeadlineExceeded):
        harness.client().evaluate(numbered_batch(1), deadline_ms=-1)


def test_a_cancelled_request_is_not_run(harness: Harness) -> None:
    client = harness.client()
    harness.backend.hold()
    first = client.submit(numbered_batch(4))
    harness.backend.wait_entered()
    second = client.submit(numbered_batch(6))
    client.cancel(second)
    completed = client.receive(WAIT_S * 1000)
    assert completed is not None
    assert completed.id == second
    assert completed.cancelled
    harness.backend.gate.set()
    done = client.receive(WAIT_S * 1000)
    assert done is not None
    assert done.id == first
    assert harness.backend.sizes == [4]
    client.cancel(first)
    assert client.status().metrics["cancelled"] == 1


def test_a_request_that_runs_is_cancelled_at_once(harness: Harness) -> None:
    client = harness.client()
    harness.backend.hold()
    identity = client.submit(numbered_batch(4))
    harness.backend.wait_entered()
    client.cancel(identity)
    completed = client.receive(WAIT_S * 1000)
    assert completed is not None
    assert completed.cancelled
    harness.backend.gate.set()
    batch = numbered_batch(3)
    assert same(client.evaluate(batch), expected(batch))


def test_a_full_queue_is_overloaded_and_recovers(tmp_path: Path) -> None:
    with running(tmp_path, limits=QueueLimits(play=10)) as harness:
        client = harness.client()
        harness.backend.hold()
        client.submit(numbered_batch(8))
        harness.backend.wait_entered()
        client.submit(numbered_batch(8))
        refused = client.submit(numbered_batch(8))
        completed = client.receive(WAIT_S * 1000)
        assert completed is not None
        assert completed.id == refused
        assert isinstance(completed.error, Overloaded)
        harness.backend.gate.set()
        drain_all(client, 2)
        assert len(client.evaluate(numbered_batch(8))) == 8


def test_a_request_that_would_wait_beyond_its_deadline_is_refused_at_once(tmp_path: Path) -> None:
    deep, wide = QueueLimits(selfplay=10**6, client=10**6), ConnectionLimits(client_bytes=10**9)
    with running(tmp_path, limits=deep, connections=wide) as harness:
        games = harness.client()
        large, small = numbered_batch(4096), numbered_batch(8)
        harness.backend.hold()
        for _ in range(16):  # 65,536 positions: 0.13 s by the curve.
            games.submit(large, priority="selfplay")
        patient = games.submit(small, priority="selfplay", deadline_ms=60_000)
        hasty = games.submit(small, priority="selfplay", deadline_ms=50)
        completed = games.receive(WAIT_S * 1000)
        assert completed is not None
        assert completed.id == hasty
        assert isinstance(completed.error, DeadlineExceeded)
        assert "longer than its deadline" in str(completed.error)
        played = games.submit(small, deadline_ms=60_000)  # Play goes before all that.
        harness.backend.gate.set()
        answers = [games.receive(WAIT_S * 1000) for _ in range(18)]
        assert {answer.id for answer in answers if answer is not None and answer.error is None} >= {
            patient,
            played,
        }


def test_clients_are_told_of_all_devices_together(tmp_path: Path) -> None:
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
    with running(tmp_path, backends=("first", "second")) as harness:
        client = harness.client()
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
        completed = client.receive(WAIT_S * 1000)
        assert completed is not None
        assert completed.evaluation is not None
        assert same(completed.evaluation, expected(batch))


def test_selfplay_that_fills_its_queue_keeps_no_play_out(tmp_path: Path) -> None:
    with running(tmp_path, limits=QueueLimits(play=16, selfplay=16)) as harness:
        games, engine = harness.client(), harness.client()
        harness.backend.hold()
        games.submit(numbered_batch(8), priority="selfplay")
        harness.backend.wait_entered()
        for _ in range(2):
            games.submit(numbered_batch(8), priority="selfplay")
        refused = games.submit(numbered_batch(8), priority="selfplay")
        completed = games.receive(WAIT_S * 1000)
        assert completed is not None
        assert completed.id == refused
        assert isinstance(completed.error, Overloaded)
        assert "16 positions of class selfplay are queued, of at most 16" in str(completed.error)
        played = engine.submit(numbered_batch(8))
        harness.backend.gate.set()
        completed = engine.receive(WAIT_S * 1000)
        assert completed is not None
        assert completed.id == played
        assert completed.error is None


def test_a_client_that_hoards_is_overloaded_alone(tmp_path: Path) -> None:
    with running(tmp_path, limits=QueueLimits(client=10)) as harness:
        greedy, modest = harness.client(), harness.client()
        harness.backend.hold()
        greedy.submit(numbered_batch(8))
        harness.backend.wait_entered()
        greedy.submit(numbered_batch(8))
        completed = greedy.receive(WAIT_S * 1000)
        assert completed is not None
        assert isinstance(completed.error, Overloaded)
        modest.submit(numbered_batch(8))
        modest.ping()
        harness.backend.gate.set()
        drain_all(modest, 1)


def test_too_many_positions_are_refused_on_both_sides(tmp_path: Path) -> None:
    with running(tmp_path, max_request=16) as harness:
        client = harness.client()
        with pytest.raises(TooLarge):
            client.submit(numbered_batch(17))
        client.max_batch = 1000
        with pytest.raises(TooLarge):
            client.evaluate(numbered_batch(17))


def test_an_unknown_network_is_refused_with_the_known_ones(harness: Harness) -> None:
    with pytest.raises(UnknownNetwork, match="echo"):
        harness.client().evaluate(numbered_batch(1), network="nothing like it")
    with pytest.raises(UnknownNetwork, match="echo"):
        harness.client(network="nothing like it")


def test_an_id_may_not_be_in_flight_twice(harness: Harness) -> None:
    harness.backend.hold()
    message = encode(Evaluate(5, numbered_batch(1)))
    frames = [frame if isinstance(frame, bytes) else frame.tobytes() for frame in message]
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(harness.address)
        dealer.send_multipart(frames)
        dealer.send_multipart(frames)
        assert dealer.poll(int(WAIT_S * 1000))
        # Another code than any failure of the request that goes on: its own answer comes, too.
        assert msgpack.unpackb(dealer.recv_multipart()[0])["code"] == "duplicate_id"
        harness.backend.gate.set()
        assert dealer.poll(int(WAIT_S * 1000))
        answer = msgpack.unpackb(dealer.recv_multipart()[0])
        assert (answer["type"], answer["id"]) == ("result", 5)


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\xc1"],
        [b"hello"],
        [msgpack.packb({"type": "evaluate", "id": 1})],
        [msgpack.packb({"type": "dance", "id": 1})],
        [msgpack.packb([1, 2, 3]), b"", b""],
        [msgpack.packb({"id": 2**63, "type": "ping"})],
        [b"\x00" * 100_000],
    ],
    ids=["empty", "invalid", "text", "no frames", "unknown", "list", "huge id", "huge header"],
)
def test_a_broken_message_gets_an_error_and_disturbs_nobody(harness: Harness, frames: list[bytes]) -> None:
    client = harness.client()
    reply = raw_exchange(harness.address, frames)
    assert (reply["type"], reply["code"]) == ("error", "bad_request")
    batch = numbered_batch(2)
    assert same(client.evaluate(batch), expected(batch))
    assert client.status().metrics["bad_messages"] == 1


def test_a_client_that_vanishes_disturbs_nobody(harness: Harness) -> None:
    gone, client = harness.client(), harness.client()
    harness.backend.hold()
    gone.submit(numbered_batch(2))
    harness.backend.wait_entered()
    gone.submit(numbered_batch(2))
    gone.ping()
    gone.close()
    harness.backend.gate.set()
    batch = numbered_batch(9)
    assert same(client.evaluate(batch), expected(batch))


def test_several_networks_are_addressed_by_name(tmp_path: Path) -> None:
    with running(tmp_path, networks=2) as harness:
        client = harness.client()
        assert [network.name for network in client.networks] == ["echo", "echo-2"]
        for backend in harness.backends:
            backend.sizes.clear()
        client.evaluate(numbered_batch(3), network="echo-2")
        client.evaluate(numbered_batch(4), network="echo")
        assert [backend.sizes for backend in harness.backends] == [[4], [3]]


def test_a_file_that_is_no_network_cannot_be_loaded(harness: Harness, tmp_path: Path) -> None:
    client = harness.client()
    with pytest.raises(LoadFailed, match="missing"):
        client.load(str(tmp_path / "missing.pb"))
    assert len(client.evaluate(numbered_batch(1))) == 1


def test_an_unloaded_network_is_gone_and_its_device_freed(tmp_path: Path) -> None:
    with running(tmp_path, networks=2) as harness:
        client = harness.client()
        client.unload("echo-2")
        assert harness.backends[1].closed
        with pytest.raises(UnknownNetwork):
            client.evaluate(numbered_batch(1), network="echo-2")
        with pytest.raises(BadRequest, match="last network"):
            client.unload("echo")


def test_no_other_network_takes_the_place_of_an_unloaded_default(tmp_path: Path) -> None:
    with running(tmp_path, networks=2) as harness:
        client, admin = harness.client(), harness.client()
        assert client.network.name == "echo"
        admin.unload("echo")
        for unnamed in ("", "default"):
            with pytest.raises(UnknownNetwork):
                client.evaluate(numbered_batch(1), network=unnamed)
        with pytest.raises(UnknownNetwork, match="echo-2"):
            harness.client()
        assert harness.client(network="echo-2").evaluate(numbered_batch(3)) is not None


def test_the_default_is_that_of_the_hello_until_it_is_unloaded(tmp_path: Path) -> None:
    with running(tmp_path, networks=2) as harness:
        before, admin = harness.client(), harness.client()
        assert admin.alias("default", "echo-2") == "echo-2"
        after = harness.client()
        assert (before.network.name, after.network.name) == ("echo", "echo-2")
        for backend in harness.backends:
            backend.sizes.clear()
        before.evaluate(numbered_batch(3), network="")
        after.evaluate(numbered_batch(4), network="")
        assert [backend.sizes for backend in harness.backends] == [[3], [4]]
        admin.unload("echo")
        with pytest.raises(UnknownNetwork, match="default network was unloaded"):
            before.evaluate(numbered_batch(1), network="")
        after.evaluate(numbered_batch(5), network="")


def test_an_alias_is_a_further_name(tmp_path: Path) -> None:
    with running(tmp_path, networks=2) as harness:
        client = harness.client()
        client.alias("best", "echo-2")
        assert harness.client(network="best").network.name == "echo-2"
        harness.backends[1].sizes.clear()
        client.evaluate(numbered_batch(3), network="best")
        assert harness.backends[1].sizes == [3]
        assert client.status().aliases == {"default": "echo", "best": "echo-2"}
        client.alias("best", "echo")
        assert client.status().aliases["best"] == "echo"
        with pytest.raises(BadRequest, match="named"):
            client.alias("echo", "echo-2")
        with pytest.raises(UnknownNetwork):
            client.alias("best", "nothing like it")
        client.alias("best", "")
        with pytest.raises(UnknownNetwork):
            client.evaluate(numbered_batch(1), network="best")


def test_before_the_networks_are_there_evaluations_are_not_ready(tmp_path: Path) -> None:
    gate = threading.Event()

    def slow(name: str) -> EchoBackend:
        assert gate.wait(WAIT_S)
        return EchoBackend()

    def ask(address: str) -> None:
        with EvaluatorClient(address, timeout=WAIT_S, handshake=False) as client:
            assert client.status().state == "loading"
            client.max_batch = 64
            with pytest.raises(NotReady):
                client.evaluate(numbered_batch(1), network="")
            with pytest.raises(NotReady):
                client.load("")
        gate.set()

    with running(tmp_path, make=slow, before_ready=ask) as harness:
        assert harness.client().status().state == "ready"


def test_a_network_that_is_being_reloaded_is_loaded_once(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By who asks for its new content before it is served."""
    before, after = sorted((DATA / "lc0" / "nets").glob("*.pb.gz"))[:2]
    path = tmp_path / "changing.pb.gz"
    path.write_bytes(before.read_bytes())
    networks, dispatcher = harness.service._networks, harness.service._dispatcher
    client, other, third = harness.client(), harness.client(), harness.client()
    client.load(str(path))
    reloading, go = threading.Event(), threading.Event()
    add = dispatcher.add

    def added(network: ServedNetwork) -> None:
        if threading.current_thread().name == "reload":
            reloading.set()
            assert go.wait(WAIT_S)
        else:
            go.set()  # Too early: this one is there, and the reload has not put it into its place.
        add(network)

    class Noticed:
        lock = threading.Lock()

        def __enter__(self) -> None:
            if threading.current_thread().name == "load":
                go.set()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr(networks, "_changing", Noticed(), raising=False)
    monkeypatch.setattr(dispatcher, "add", added)
    path.write_bytes(after.read_bytes())
    threads = [threading.Thread(target=client.reload, args=("changing",))]
    threads[0].start()
    assert reloading.wait(WAIT_S)
    threads.append(threading.Thread(target=other.load, args=(str(after),)))
    threads[1].start()
    for thread in threads:
        thread.join(WAIT_S)
    names = [network.name for network in third.status().networks]
    assert sorted(names) == ["changing", "echo"]
    third.unload("changing")
    assert [network.name for network in third.status().networks] == ["echo"]


def test_one_hello_of_a_client_waits_for_the_networks(tmp_path: Path) -> None:
    """Hundreds of thousands would hold up everybody when the networks are there."""
    gate = threading.Event()
    answers: list[Any] = []

    def slow(name: str) -> EchoBackend:
        assert gate.wait(WAIT_S)
        return EchoBackend()

    def ask(address: str) -> None:
        with foreign_client(address) as dealer:
            for identity in (1, 2, 3):
                send(dealer, encode(Hello(identity)))
            answers.extend(decode_reply(dealer.recv_multipart()) for _ in range(2))
            gate.set()
            answers.append(decode_reply(dealer.recv_multipart()))
            send(dealer, encode(Hello(4)))
            answers.append(decode_reply(dealer.recv_multipart()))

    with running(tmp_path, make=slow, before_ready=ask):
        assert [(answer.id, getattr(answer, "code", "")) for answer in answers[:2]] == [
            (2, "not_ready"),
            (3, "not_ready"),
        ]
        assert [answer.id for answer in answers[2:] if isinstance(answer, Welcome)] == [1, 4]


def test_who_is_connected_is_shown_by_name_and_who_is_gone_is_not(harness: Harness) -> None:
    admin, other = harness.client(name="admin"), harness.client(name="other")
    other.evaluate(numbered_batch(3))
    harness.backend.hold()
    other.submit(numbered_batch(5), priority="analysis")
    other.ping()
    found = {client["name"]: client for client in admin.clients()}
    assert set(found) == {"admin", "other"}
    assert found["other"]["requests"] == 1
    assert found["other"]["positions"] == 3
    assert found["other"]["requests_in_flight"] == 1
    assert found["other"]["positions_in_flight"] == {"play": 0, "analysis": 5, "selfplay": 0}
    assert "127.0.0.1" in found["other"]["address"]
    other.close()
    while len(admin.clients()) > 1:
        pass
    assert admin.status().metrics["clients"] == 1
    harness.backend.gate.set()


@pytest.mark.skipif(not gate.AVAILABLE, reason="this system has no gate, by which it is known")
def test_what_one_who_has_left_had_asked_for_is_not_worked_at(harness: Harness) -> None:
    """Thousands of messages may be on the way when a client goes."""
    other = harness.client()
    holds, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        holds.set()
        goes_on.wait(WAIT_S)

    try:
        with connect(int(harness.address.rpartition(":")[2])) as gone:
            harness.service._call(hold)  # The I/O thread takes nothing in.
            assert holds.wait(WAIT_S)
            gone.sendall(message([msgpack.packb({"type": "status", "id": 1})]) * 50)
        while harness.service.state().connections > 1:
            pass
    finally:
        goes_on.set()
    for _ in range(100):  # By turns, one message of each client.
        other.ping()
    assert harness.service.metrics.dropped_replies.value == 0
    assert other.status().metrics["clients"] == 1


def test_connections_beyond_the_limit_are_closed_and_the_others_served(tmp_path: Path) -> None:
    with running(tmp_path, connections=ConnectionLimits(3)) as harness:
        client = harness.client()
        port = int(harness.address.rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        closed = 0
        for connection in idle:
            connection.settimeout(0.0)
        while closed < 6:
            client.ping()
            closed = sum(ended(connection) for connection in idle)
        for connection in idle:
            connection.close()
        assert len(client.evaluate(numbered_batch(2))) == 2
        # Those that are gone do not count.
        while client.status().metrics["connections"] > 1:
            pass
        assert len(harness.client().evaluate(numbered_batch(2))) == 2


def ended(connection: socket.socket) -> bool:
    """Whether the other side has closed a connection that says nothing but its greeting."""
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_ipv6(tmp_path: Path) -> None:
    with running(tmp_path, address="tcp://[::1]:0") as harness:
        assert harness.address.startswith("tcp://[::1]:")
        assert len(harness.client().evaluate(numbered_batch(2))) == 2
        assert harness.client().clients()[0]["address"] == "::1"


def test_draining_finishes_what_is_there_and_takes_nothing_new(harness: Harness) -> None:
    client, other = harness.client(), harness.client()
    harness.backend.hold()
    batch = numbered_batch(4)
    client.submit(batch)
    harness.backend.wait_entered()
    harness.service.drain()
    deadline = time.monotonic() + WAIT_S
    while not other.status().draining:
        assert time.monotonic() < deadline
    assert not other.status().ready
    with pytest.raises(Draining):
        other.evaluate(numbered_batch(1))
    with pytest.raises(Draining):
        harness.client()
    assert client.receive() is None
    assert client.draining
    harness.backend.gate.set()
    completed = client.receive(WAIT_S * 1000)
    assert completed is not None
    assert same(completed.result(), expected(batch))
    harness.thread.join(WAIT_S)
    assert not harness.thread.is_alive()


def test_a_client_can_drain_the_evaluator(harness: Harness) -> None:
    client = harness.client()
    client.drain()
    harness.thread.join(WAIT_S)
    assert not harness.thread.is_alive()
    with pytest.raises(EvaluatorLost):
        client.ping()


def test_status_counts_by_class(harness: Harness) -> None:
    client = harness.client()
    client.evaluate(numbered_batch(3), priority="analysis")
    status = client.status()
    assert status.ready
    assert not status.draining
    assert status.metrics["classes"]["analysis"] == {"requests": 1, "positions": 3}
    assert status.metrics["batch_size"]["4"] == 1


def test_blocking_evaluate_leaves_other_batches_to_receive(harness: Harness) -> None:
    client = harness.client()
    first = client.submit(numbered_batch(2))
    batch = numbered_batch(3)
    assert same(client.evaluate(batch), expected(batch))
    completed = client.receive(WAIT_S * 1000)
    assert completed is not None
    assert completed.id == first


def test_messages_that_take_long_do_not_keep_the_devices_waiting(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each millisecond of messages the devices are told of new requests, and answers are sent."""
    client, dispatcher = harness.client(), harness.service._dispatcher
    blocked, go = threading.Event(), threading.Event()
    taken_in: list[int] = [0]
    announce, pong = dispatcher.announce, service_module._HANDLERS[Ping]
    late_ms = [0.0]

    def slow(*arguments: Any) -> None:
        late_ms[0] += 0.6
        taken_in[-1] += 1
        pong(*arguments)

    def note(**options: Any) -> Any:
        attempt = announce(**options)
        taken_in.append(0)
        return attempt

    def block() -> None:
        blocked.set()
        assert go.wait(WAIT_S)

    monkeypatch.setattr(service_module, "now_ms", lambda: now_ms() + late_ms[0])
    monkeypatch.setitem(service_module._HANDLERS, Ping, slow)
    monkeypatch.setattr(dispatcher, "announce", note)
    harness.service._call(block)
    assert blocked.wait(WAIT_S)
    for identity in range(1, 101):
        client._send(Ping(10**6 + identity))
    go.set()
    client.status()
    assert sum(taken_in) == 100
    assert max(taken_in) <= 2


def test_errors_have_the_protocols_codes(harness: Harness) -> None:
    with pytest.raises(RemoteError) as caught:
        harness.client().evaluate(numbered_batch(1), network="none")
    assert caught.value.code == "unknown_network"

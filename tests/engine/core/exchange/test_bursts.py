# SPDX-License-Identifier: GPL-3.0-or-later
"""A search's calls without the interpreter, with peers of all kinds at the other end of a real connection."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import msgpack
import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("there are such connections on Linux only", allow_module_level=True)

from evaluator.backends.reference.random import random_evaluation
from protocol.batch import EvaluationBatch
from protocol.wire.codec import encode, encode_evaluate
from protocol.wire.messages import Cancelled, Error, Evaluate, Pong, Result
from tests.engine.core.exchange.peer import Answer, Frames, Peer, Player, plain

SOON = 0.05
"""Seconds: of what is over by itself."""

GOOD = 3
"""Answers that a peer gives before it does what the test is about."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "peer"


@pytest.fixture
def player(path: Path) -> Iterator[Callable[..., Player]]:
    """Makes a player whose first batch is on its way."""
    made: list[Player] = []

    def make(**changed: Any) -> Player:
        made.append(Player(path, **changed))
        made[-1].begin()
        return made[-1]

    yield make
    for each in made:
        each.close()


def after(good: int, then: Answer) -> Answer:
    """So many good answers, then others."""
    count = 0

    def answer(request: Evaluate) -> Sequence[Frames] | None:
        nonlocal count
        count += 1
        return plain(request) if count <= good else then(request)

    return answer


def test_visits_are_made_up_to_a_limit_and_not_one_more(path: Path, player: Callable[..., Player]) -> None:
    with Peer(path):
        one = player()
        assert one.run(nodes=777) == "look"
        assert one.visits() == 777
        assert one.sent == {}
        info = one.tree.root_info()
        assert one.answers == info.batches
        assert info.evaluations >= 700


def test_it_ends_when_somebody_has_to_look(path: Path, player: Callable[..., Player]) -> None:
    with Peer(path):
        one = player()
        assert one.run(look_at=100) == "look"
        assert one.visits() >= 100
        one.begin()
        assert one.run(depth=2.0) == "look"
        assert one.tree.root_info().mean_depth >= 2.0


def test_it_ends_with_its_time_after_an_answer(path: Path, player: Callable[..., Player]) -> None:
    with Peer(path):
        one = player()
        assert one.run(until=0.0) == "time"
        assert one.visits() == 1
        assert len(one.sent) == 1  # the next batch is on its way


def test_nothing_is_sent_that_would_come_too_late(path: Path, player: Callable[..., Player]) -> None:
    with Peer(path):
        one = player()
        assert one.run(hard=0.0) == "time"
        assert (one.visits(), one.sent, one.tree.root_info().batches) == (1, {}, 1)


def test_silence_ends_it_and_changes_nothing(path: Path, player: Callable[..., Player]) -> None:
    with Peer(path, lambda request: []):
        one = player()
        assert one.run(patience=SOON) == "silence"
        assert (list(one.sent), one.answers, one.visits()) == ([1], 0, 0)


def test_a_result_that_names_another_network_is_left_to_others(
    path: Path, player: Callable[..., Player]
) -> None:
    def named(network: str) -> Answer:
        def answer(request: Evaluate) -> list[Frames]:
            evaluation = random_evaluation(request.batch)
            return [encode(Result(request.id, evaluation, 0.1, 0.2, len(request.batch), "peer", network))]

        return answer

    responses = [named("hash"), named("hash"), named("another hash")]
    with Peer(path, lambda request: responses[min(request.id, 3) - 1](request)):
        one = player(in_flight=1)
        assert one.run() == "other"
        assert (one.answers, list(one.sent)) == (2, [3])


def test_it_ends_when_nothing_is_in_flight(path: Path, player: Callable[..., Player]) -> None:
    """All that the position's only moves lead to is over at once, so nothing is left to evaluate."""
    with Peer(path):
        one = player(fen="k7/8/8/8/8/8/2q5/K7 b - - 99 80")
        assert one.run() == "idle"
        assert one.sent == {}
        one.tree.clear()  # No batch is under way for the tree either.


@pytest.mark.parametrize("network", ["", "net", "n" * 31, "n" * 32, "n" * 256, "Schröder ☃ " * 40])
def test_headers_are_those_of_the_codec(path: Path, player: Callable[..., Player], network: str) -> None:
    """With numbers that take one byte, two and three."""
    made: list[Any] = []

    def answer(request: Evaluate) -> Sequence[Frames]:
        made.append(encode_evaluate(request.id, request.batch, "play", None, network)[0])
        return plain(request)

    with Peer(path, answer) as peer:
        assert player(network=network).run(nodes=8000) == "look"
        assert peer.headers == made
        assert len(made) > 256


def changed(request: Evaluate, **fields: Any) -> list[Frames]:
    """A result but for some of its arrays, or with another id."""
    good = random_evaluation(request.batch)
    identity = fields.pop("identity", request.id)
    arrays = {"logits": good.logits, "wdl": good.wdl, "moves_left": good.moves_left, **fields}
    return [encode(Result(identity, EvaluationBatch(**arrays), 0.0, 0.0, 1))]


def with_value(array: Any, value: float) -> Any:
    made = np.array(array)
    made.reshape(-1)[-1] = value
    return made


def cut_frames(request: Evaluate, change: Callable[[list[Any]], list[Any]]) -> list[Frames]:
    return [change(list(plain(request)[0]))]


UNUSUAL: dict[str, Answer] = {
    "an unknown id": lambda r: changed(r, identity=r.id + 1000),
    "an error": lambda r: [encode(Error(r.id, "internal", "no"))],
    "another error": lambda r: [encode(Error(0, "draining", "soon"))],
    "a cancelled": lambda r: [encode(Cancelled(r.id))],
    "a pong": lambda r: [encode(Pong(r.id))],
    "too few logits": lambda r: changed(r, logits=random_evaluation(r.batch).logits[:-1]),
    "too many logits": lambda r: changed(r, logits=np.zeros(len(r.batch.moves) + 1, np.float32)),
    "too few positions": lambda r: changed(
        r, wdl=random_evaluation(r.batch).wdl[:-1], moves_left=random_evaluation(r.batch).moves_left[:-1]
    ),
    "wdl of another size": lambda r: changed(r, wdl=np.zeros((len(r.batch) + 1, 3), np.float32)),
    "half a float": lambda r: cut_frames(r, lambda f: [*f[:3], bytes(4 * len(r.batch) + 2)]),
    "no arrays": lambda r: cut_frames(r, lambda f: f[:1]),
    "three frames": lambda r: cut_frames(r, lambda f: f[:3]),
    "five frames": lambda r: cut_frames(r, lambda f: [*f, b"more"]),
    "no header": lambda r: cut_frames(r, lambda f: [b"", *f[1:]]),
    "a broken header": lambda r: cut_frames(r, lambda f: [b"\xc1" * 40, *f[1:]]),
    "a large header": lambda r: cut_frames(r, lambda f: [f[0] + bytes(5000), *f[1:]]),
    "not a number": lambda r: changed(r, logits=with_value(random_evaluation(r.batch).logits, np.nan)),
    "infinity": lambda r: changed(r, moves_left=with_value(random_evaluation(r.batch).moves_left, np.inf)),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_burst_leaves_unusual_messages_in_the_stream(
    path: Path, player: Callable[..., Player], what: str
) -> None:
    """The message can be received as if there had been no burst, and its batch is still under way."""
    with Peer(path, after(GOOD, UNUSUAL[what])):
        one = player(in_flight=1)
        assert one.run() == "other"
        assert (list(one.sent), one.answers) == ([GOOD + 1], GOOD)
        before = one.tree.root_info()
        assert one.run() == "other"  # It stays where it is.
        assert (list(one.sent), one.answers, one.tree.root_info().batches) == ([GOOD + 1], 0, before.batches)
        assert one.stream.receive(0) is not None
        assert one.tree.root_info().visits == before.visits
        one.tree.cancel(one.sent.pop(GOOD + 1))
        assert one.tree.root_info().batches_in_flight == 0
        one.tree.clear()


def test_an_answer_that_comes_twice_counts_once(path: Path, player: Callable[..., Player]) -> None:
    with Peer(path, after(GOOD, lambda request: [*plain(request), *plain(request)])):
        one = player(in_flight=1)
        assert one.run() == "other"
        assert (list(one.sent), one.answers) == ([GOOD + 2], GOOD + 1)


def test_burst_resumes_after_results_received_elsewhere(path: Path, player: Callable[..., Player]) -> None:
    """A late answer to somebody else's request comes between its own."""
    with Peer(path, after(GOOD, lambda request: [*changed(request, identity=999), *plain(request)])):
        one = player()
        for _ in range(5):
            assert one.run(nodes=4000) == "other"
            frames = one.stream.receive(0)
            assert frames is not None and len(frames) == 4


@pytest.mark.parametrize("in_flight", [1, 2])
def test_cut_connection_leaves_books_right(path: Path, player: Callable[..., Player], in_flight: int) -> None:
    with Peer(path, after(GOOD, lambda request: None)):
        one = player(in_flight=in_flight)
        assert one.run() == "other"
        assert one.sent
        with pytest.raises(ConnectionError, match="peer"):
            one.stream.receive(1000)
        for batch in one.sent.values():
            one.tree.cancel(batch)
        assert one.tree.root_info().batches_in_flight == 0


def test_a_signal_ends_it_with_the_books_right(path: Path, player: Callable[..., Player]) -> None:
    class SignalledError(Exception):
        pass

    def on_alarm(number: int, at: FrameType | None) -> None:
        raise SignalledError

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        with Peer(path):
            one = player()
            signal.setitimer(signal.ITIMER_REAL, SOON)
            with pytest.raises(SignalledError):
                while True:
                    one.run(until=0.01)
            assert one.tree.root_info().batches_in_flight == len(one.sent)
            assert one.run(nodes=one.visits() + 100) == "look"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_burst_rejects_objects_that_are_no_batch(path: Path) -> None:
    with Peer(path), closing(Player(path)) as one, pytest.raises(RuntimeError):
        one.sent[1] = None  # type: ignore[assignment]
        one.run()


@pytest.mark.parametrize("target_ms", [None, 8.5])
def test_its_requests_ask_for_the_target_latency(
    path: Path, player: Callable[..., Player], target_ms: float | None
) -> None:
    with Peer(path, plain) as peer:
        assert player().run(nodes=40, target_ms=target_ms) == "look"
    headers = [msgpack.unpackb(header) for header in peer.headers[1:]]
    assert headers
    assert {header.get("target_ms") for header in headers} == {target_ms}

# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of requests (engine/evaluation/link/requests.py), with a real evaluator process unless it must
answer what it seldom does."""

from typing import cast

import psutil
import pytest

from engine._core import Game
from engine.evaluation.errors import PipelineError
from engine.evaluation.link.encoding import encode_games
from engine.evaluation.link.link import EvaluatorLink
from engine.evaluation.link.requests import Requests
from protocol.batch import PositionBatch
from protocol.client import Completed, EvaluatorClient
from protocol.errors import BadRequest, DeviceFailed, Draining, Overloaded, RemoteError
from tests.programs import suspend

pytestmark = pytest.mark.integration

BATCH, _ = encode_games([Game()], input_format=1)


def answered(requests: Requests[str]) -> tuple[str | None, Completed]:
    answer = requests.receive(None)
    assert answer is not None
    return answer


def test_requests_are_sent_again_when_the_evaluator_is_killed(link: EvaluatorLink) -> None:
    unsent: list[str] = []
    requests: Requests[str] = Requests(link, "play", unsent.append)
    first = requests.connect()
    assert first is not None and link.pid is not None
    evaluator = suspend(psutil.Process(link.pid))
    assert requests.send(BATCH, "a") and requests.send(BATCH, "b")
    evaluator.kill()
    assert requests.receive(None) is None
    assert unsent == ["a", "b"]
    assert requests.client is None
    assert not requests.send(BATCH, "c")
    assert unsent == ["a", "b"]  # What was never sent is still the caller's.
    assert link.wait(60) is not first
    assert requests.connect() is not None
    assert requests.send(BATCH, "a")
    assert answered(requests)[0] == "a"


def test_another_connection_of_the_link_takes_over_what_was_sent(link: EvaluatorLink) -> None:
    unsent: list[str] = []
    requests: Requests[str] = Requests(link, "play", unsent.append)
    first = requests.connect()
    assert first is not None
    assert requests.send(BATCH, "a")
    link.lost(first, "somebody else has found out")
    assert link.wait(60) is not first
    assert requests.connect() is link.client
    assert unsent == ["a"]


def test_unwanted_requests_are_cancelled(link: EvaluatorLink, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: Requests[str] = Requests(link, "play", lambda request: pytest.fail("was given up"))
    requests.connect()
    cancelled: list[int] = []
    monkeypatch.setattr(EvaluatorClient, "cancel", lambda _client, identity: cancelled.append(identity))
    for name in ("wanted", "unwanted"):
        assert requests.send(BATCH, name)
    requests.cancel(lambda request: request == "unwanted")
    assert [requests.sent[identity] for identity in cancelled] == ["unwanted"]
    assert {answered(requests)[0] for _ in range(2)} == {"wanted", "unwanted"}


def test_a_network_that_is_not_there_is_a_refusal(link: EvaluatorLink) -> None:
    requests: Requests[str] = Requests(link, "play", lambda request: pytest.fail("would be refused again"))
    requests.connect()
    requests.send(BATCH, "a", network="no-such-network")
    request, completed = answered(requests)
    assert request == "a"
    assert completed.evaluation is None and "no-such-network" in str(completed.error)


def test_an_empty_batch_is_refused_before_it_is_sent(link: EvaluatorLink) -> None:
    requests: Requests[str] = Requests(link, "play", lambda request: pytest.fail("was refused"))
    requests.connect()
    with pytest.raises(PipelineError, match="refuses the batch: an empty batch"):
        requests.send(BATCH.slice(0, 0), "empty")
    assert not requests.sent


class _Refusing:
    """A link and its client, which answers every request with an error."""

    def __init__(self, error: RemoteError) -> None:
        self.client: _Refusing | None = self
        self._error = error
        self._sent = 0

    def submit(self, batch: PositionBatch, **arguments: object) -> int:
        self._sent += 1
        return self._sent

    def receive(self, timeout_ms: float | None) -> Completed:
        return Completed(self._sent, None, self._error)

    def lost(self, client: EvaluatorClient, reason: str, *, refused: bool) -> None:
        assert refused
        self.client = None

    def close_retired(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "again", "connected"),
    [
        (Overloaded("the queue is full"), True, True),
        (Draining("it ends"), True, False),
        (DeviceFailed("no device is left"), True, False),
        (BadRequest("move 7 of 20 is out of range"), False, True),
    ],
)
def test_only_some_requests_are_sent_again(error: RemoteError, again: bool, connected: bool) -> None:
    unsent: list[str] = []
    refusing = _Refusing(error)
    requests: Requests[str] = Requests(cast(EvaluatorLink, refusing), "play", unsent.append)
    requests.connect()
    requests.send(BATCH, "a")
    request, completed = answered(requests)
    assert completed.error is error
    assert unsent == (["a"] if again else [])
    assert request == (None if again else "a")
    assert (requests.client is not None) == (refusing.client is not None) == connected

"""What the service remembers of its clients."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from evaluator.service import sessions
from evaluator.service.sessions import IDLE_CLIENT_S, Sessions


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the sessions."""
    made = Clock()
    monkeypatch.setattr(sessions, "time", made)
    return made


def test_a_client_is_idle_after_a_while_unless_it_waits_for_an_answer(clock: Clock) -> None:
    known = Sessions()
    known.seen(b"idle")
    known.seen(b"waiting").requests[1] = Mock(), Mock()
    clock.now += IDLE_CLIENT_S / 2
    known.seen(b"late")
    assert known.idle() == []
    clock.now += IDLE_CLIENT_S / 2 + 1
    assert known.idle() == [b"idle"]
    known.forget(b"idle")
    assert len(known) == 2


def test_a_request_is_finished_once() -> None:
    known = Sessions()
    known.seen(b"client").requests[1] = Mock(), Mock()
    assert known.busy
    assert known.finish(b"client", 1)
    assert not known.finish(b"client", 1)
    assert not known.finish(b"nobody", 1)
    assert not known.busy


def test_a_client_that_comes_back_keeps_its_session() -> None:
    known = Sessions()
    first = known.seen(b"client")
    assert known.seen(b"client") is first

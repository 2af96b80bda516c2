"""What the service remembers of its clients."""

from __future__ import annotations

from unittest.mock import Mock

from evaluator.service.sessions import Sessions


def test_a_request_is_finished_once() -> None:
    known = Sessions()
    session = known.add(b"client", 7, "127.0.0.1")
    session.requests[1] = Mock(count=3), Mock()
    session.requests[2] = Mock(count=5), Mock()
    assert known.unanswered() == [(b"client", 1), (b"client", 2)]
    assert known.finish(b"client", 1, answered=True)
    assert not known.finish(b"client", 1, answered=True)
    assert not known.finish(b"nobody", 1, answered=True)
    assert known.finish(b"client", 2, answered=False)
    assert not known.busy
    assert (session.answered, session.positions) == (1, 3)


def test_a_descriptor_that_is_used_again_is_that_of_the_last_client() -> None:
    known = Sessions()
    known.add(b"gone", 7, "")
    new = known.add(b"new", 7, "")
    known.forget(b"gone")
    assert known.on(7) is new
    known.forget(b"new")
    assert known.on(7) is None


def test_a_client_without_a_known_connection_is_found_by_its_identity_alone() -> None:
    known = Sessions()
    session = known.add(b"client", -1, "")
    assert known.on(-1) is None
    assert known.of(b"client") is session
    assert len(known) == 1

# SPDX-License-Identifier: GPL-3.0-or-later
"""An evaluator that is silent as a whole is found out; one that only takes long is not."""

from engine.evaluation.link.health import PATIENCE_SECONDS, QUIET_SECONDS, Keepalive


class Recorded:
    """A connection that notes when it was knocked at."""

    def __init__(self) -> None:
        self.heard_at = 0.0
        self.knocks = 0

    def send_keepalive(self) -> None:
        self.knocks += 1


def test_evaluator_is_lost_when_it_does_not_answer_a_ping() -> None:
    client = Recorded()
    looked = Keepalive(client)
    assert not looked.has_stopped(QUIET_SECONDS - 0.1) and client.knocks == 0
    assert not looked.has_stopped(QUIET_SECONDS) and client.knocks == 1
    assert not looked.has_stopped(QUIET_SECONDS + PATIENCE_SECONDS - 0.1)
    assert looked.has_stopped(QUIET_SECONDS + PATIENCE_SECONDS)
    assert client.knocks == 1


def test_evaluator_is_kept_when_it_answers_pings() -> None:
    client = Recorded()
    looked = Keepalive(client)
    now = 0.0
    for _knock in range(50):
        now += QUIET_SECONDS
        assert not looked.has_stopped(now)
        client.heard_at = now = now + PATIENCE_SECONDS / 2
    assert client.knocks == 50


def test_one_that_was_idle_is_given_its_time() -> None:
    client = Recorded()
    looked = Keepalive(client)
    assert not looked.has_stopped(1000.0)
    assert not looked.has_stopped(1000.0 + PATIENCE_SECONDS - 0.1)

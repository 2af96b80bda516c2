# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of a key, over all of its connections."""

from pathlib import Path
from typing import Any

import pytest

from evaluator.scheduling.requests import Request
from evaluator.scheduling.scheduler import Scheduler
from evaluator.service.sessions import Usage
from protocol.common.keys.clients import AllowedClient, Quota, allow, read_clients
from protocol.common.keys.notation import KeysError
from protocol.errors import NotAllowed, Overloaded
from tests.evaluator.service.echo import numbered_batch

BATCH = numbered_batch(8)


def request(rank: int = 0, now: float = 0.0) -> Request:
    return Request("client", 1, BATCH, rank, now)


def test_class_is_refused_when_the_key_is_for_others() -> None:
    usage = Usage("laptop", Quota(classes=("analysis", "selfplay")))
    usage.charge(request(rank=1))
    with pytest.raises(NotAllowed, match=r"laptop.*classes=analysis,selfplay"):
        usage.charge(request(rank=0))
    assert (usage.requests, usage.refused) == (1, 1)


def test_request_is_refused_when_too_many_are_in_flight() -> None:
    usage, first = Usage("laptop", Quota(requests=2)), request()
    usage.charge(first)
    usage.charge(request())
    with pytest.raises(Overloaded, match="requests=2"):
        usage.charge(request())
    usage.release(first, answered=True)
    usage.charge(request())
    assert (usage.requests, usage.answered, usage.positions, usage.refused) == (2, 1, 8, 1)


def test_rate_is_kept_on_average_and_errors_name_the_wait() -> None:
    usage, accepted, now = Usage("laptop", Quota(rate=80)), 0, 10_000.0
    for _ in range(1000):
        try:
            usage.charge(request(now=now))
            accepted += 1
        except Overloaded as error:
            assert "rate=80" in str(error)
            wait_ms = int(str(error).split()[-2])
            assert 0 < wait_ms <= 100
            now += wait_ms
        now += 1.0
    seconds = (now - 10_000.0) / 1000
    assert 80 * seconds <= 8 * accepted <= 80 * (seconds + 1) + 16


def test_share_decides_how_much_of_a_device_a_key_gets() -> None:
    scheduler = Scheduler()
    for number in range(400):
        for client, share in (("one", 1.0), ("three", 3.0)):
            each = Request(client, number, BATCH, 0, 0.0, share=share)
            scheduler.add(each)
    taken = [segment.request.client for _ in range(100) for segment in scheduler.take(8, 0.0)]
    assert taken.count("three") == pytest.approx(75, abs=3)


@pytest.mark.parametrize(
    "quota",
    [
        Quota(),
        Quota(("play",)),
        Quota(requests=3, rate=20_000, share=0.5),
        Quota(("play", "selfplay"), share=2.0),
    ],
)
def test_quota_is_kept_in_the_list_of_clients(tmp_path: Path, quota: Quota) -> None:
    client = AllowedClient("laptop", "play", bytes(range(32)), quota)
    allow(tmp_path / "clients", client)
    assert read_clients(tmp_path / "clients") == {client.key: client}


@pytest.mark.parametrize(
    "words",
    [["classes=chess"], ["rate=-1"], ["rate=0"], ["share=0"], ["share=nan"], ["requests=x"], ["x=1"],
     ["rate"], ["rate=1", "rate=2"], ["share=1e9"], ["classes="]],
)  # fmt: skip
def test_quota_is_refused_when_it_has_no_meaning(words: Any) -> None:
    with pytest.raises(KeysError, match=words[-1].split("=")[0]):
        Quota.of(words)

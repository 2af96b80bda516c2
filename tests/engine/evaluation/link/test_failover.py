# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several evaluators is used. Times are what the test says they are."""

import pytest

from engine.evaluation.link.failover import MOST_SECONDS, RETURN_SECONDS, STEADY_SECONDS, Failover
from engine.evaluation.link.health import UNREACHABLE

A, B, C = "tcp://a:1", "tcp://b:1", "tcp://c:1"


def choice(**states: str) -> Failover:
    """A choice among a, b and c, seen in these states at second 0; those not named are not known."""
    made = Failover([A, B, C])
    for name, state in states.items():
        made.record(f"tcp://{name}:1", state, "", 0.0)
    return made


def best(made: Failover, now: float = 100.0) -> list[str]:
    return [standing.address for standing in made.usable(now)]


def better(made: Failover, address: str, now: float = 100.0) -> str | None:
    standing = made.better_than(address, now)
    return None if standing is None else standing.address


@pytest.mark.parametrize(
    ("states", "usable"),
    [
        ({"a": "ready", "b": "ready", "c": "ready"}, [A, B, C]),
        ({"a": "degraded", "b": "ready", "c": "degraded"}, [B, A, C]),
        ({"a": "draining", "b": "loading", "c": "degraded"}, [C]),
        ({"a": UNREACHABLE, "b": "failed", "c": "draining"}, []),
        ({"c": "ready"}, [C]),
    ],
)
def test_the_state_comes_before_the_order(states: dict[str, str], usable: list[str]) -> None:
    assert best(choice(**states)) == usable


@pytest.mark.parametrize(
    ("states", "here", "there"),
    [
        ({"a": "ready", "b": "ready"}, A, None),
        ({"a": "degraded", "b": "ready"}, A, B),
        ({"a": "draining", "b": "degraded", "c": "ready"}, A, C),
        ({"a": "degraded", "b": "degraded"}, A, None),
        ({"a": UNREACHABLE, "b": UNREACHABLE}, A, None),
        ({"a": "degraded", "b": "ready"}, B, None),
        ({"a": "ready", "b": "ready"}, B, A),
        ({"a": "ready", "b": "ready", "c": "ready"}, C, A),
        ({"b": "ready"}, "", B),
        ({"a": "degraded"}, "", None),
    ],
)
def test_failover_chooses_the_next_evaluator(states: dict[str, str], here: str, there: str | None) -> None:
    assert better(choice(**states), here) == there


def test_preferred_evaluator_returns_when_ready_for_a_while() -> None:
    made = choice(a=UNREACHABLE, b="ready")
    made.record(A, "ready", "", 50.0)
    assert better(made, B, 50.0 + RETURN_SECONDS - 0.1) is None
    made.record(A, UNREACHABLE, "", 53.0)
    made.record(A, "ready", "", 54.0)
    assert better(made, B, 50.0 + RETURN_SECONDS) is None
    assert better(made, B, 54.0 + RETURN_SECONDS) == A


def test_one_that_comes_and_goes_is_tried_ever_more_rarely() -> None:
    made = choice(a="ready", b="ready")
    now, waits = 100.0, []
    for _time in range(12):
        made.used(A, now)
        made.record(A, UNREACHABLE, "gone", now + 1)
        made.left(A, now + 1)
        made.record(A, "ready", "", now + 2)
        now = since = now + 2
        while better(made, B, now) is None:
            now += 0.5
        waits.append(now - since)
    assert waits[:4] == [RETURN_SECONDS * factor for factor in (1, 2, 4, 8)]
    assert waits[-1] == MOST_SECONDS


def test_one_that_was_steady_is_trusted_as_at_first() -> None:
    made = choice(a="ready", b="ready")
    for left_at in (100.0, 101.0, 102.0):
        made.left(A, left_at)
    made.used(A, 200.0)
    now = 200.0 + STEADY_SECONDS
    made.record(A, UNREACHABLE, "gone", now)
    made.left(A, now)
    made.record(A, "ready", "", now + 1)
    assert better(made, B, now + 1 + RETURN_SECONDS) == A


def test_evaluator_just_left_is_the_last_choice() -> None:
    made = choice(a="ready", b="ready")
    made.left(A, 100.0)
    assert best(made, 101.0) == [B, A]
    made.record(B, UNREACHABLE, "", 101.0)
    assert best(made, 101.0) == [A]


def test_a_degraded_one_is_not_left_for_one_that_was_just_left() -> None:
    made = choice(a="ready", b="ready")
    made.left(A, 100.0)
    made.record(B, "degraded", "a device is left out", 101.0)
    assert better(made, B, 101.0) is None
    assert better(made, B, 100.0 + RETURN_SECONDS) == A


def test_unfit_evaluator_is_no_choice_until_it_changes() -> None:
    made = choice(b="ready")
    made.record(A, "ready", "", 0.0, frozenset(["one"]))
    made.standings[A].unfit = "another network"
    made.record(A, "ready", "", 1.0, frozenset(["one"]))
    assert best(made) == [B] and better(made, B) is None
    made.record(A, "ready", "", 2.0, frozenset(["one", "two"]))
    assert best(made) == [A, B] and better(made, B) == A

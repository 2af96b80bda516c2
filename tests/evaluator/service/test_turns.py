"""Two threads at one loop: one step at a time, and no standstill when one is held up."""

from __future__ import annotations

import threading

import pytest

from evaluator.service.turns import THREADS, Turns

WAIT_S = 60.0


@pytest.mark.quick
def test_the_loop_ends_with_the_step_that_says_so() -> None:
    steps: list[int] = []

    def step() -> bool:
        steps.append(len(steps))
        return len(steps) < 100

    Turns().run(step)
    assert steps == list(range(100))


@pytest.mark.quick
def test_what_a_step_raises_ends_the_loop() -> None:
    def step() -> bool:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        Turns().run(step)


@pytest.mark.quick
def test_who_is_away_for_a_moment_finds_the_place_free() -> None:
    turns = Turns()
    threads: set[threading.Thread] = set()
    back: list[bool] = []

    def step() -> bool:
        threads.add(threading.current_thread())
        turns.leave()
        back.append(turns.come_back())
        return len(back) < 1000

    turns.run(step)
    # Unless the machine stood still for TAKE_OVER_S within a step.
    assert back.count(True) >= 900


def test_the_other_thread_takes_the_place_of_one_that_stays_away() -> None:
    turns = Turns()
    gate, returned = threading.Event(), threading.Event()
    first: list[threading.Thread] = []
    others: list[threading.Thread] = []
    came_back: list[bool] = []

    def step() -> bool:
        own = threading.current_thread()
        if not first:
            first.append(own)
            turns.leave()
            assert gate.wait(WAIT_S)
            came_back.append(turns.come_back())
            returned.set()
            return False  # of no effect, as the other thread is in the loop
        others.append(own)
        if len(others) == 3:
            gate.set()
            assert returned.wait(WAIT_S)
        return len(others) < 10

    turns.run(step)
    assert came_back == [False]
    assert set(others) == {others[0]}
    assert others[0] is not first[0]


def test_who_has_lost_the_place_takes_it_over_in_turn() -> None:
    turns = Turns()
    gates = [threading.Event() for _ in range(THREADS)]
    stuck: list[threading.Thread] = []
    after: list[threading.Thread] = []

    def step() -> bool:
        if len(stuck) < THREADS:
            if len(stuck) == THREADS - 1 and not turns.can_leave:
                gates[0].set()  # Nobody is there to take over until the first one is back.
                return True
            gate = gates[len(stuck)]
            stuck.append(threading.current_thread())
            turns.leave()
            assert gate.wait(WAIT_S)
            turns.come_back()
            return True
        after.append(threading.current_thread())
        return len(after) < 3

    turns.run(step)
    for gate in gates:
        gate.set()
    assert len(set(stuck)) == THREADS
    assert set(after) == {stuck[0]}


def test_another_thread_takes_the_place_at_once_if_it_is_called() -> None:
    turns = Turns()
    away: list[threading.Thread] = []
    both = threading.Event()

    def step() -> bool:
        if len(away) == 2:
            both.set()
            return False
        if not turns.can_leave:
            return True
        away.append(threading.current_thread())
        turns.leave(at_once=True)
        assert both.wait(WAIT_S)
        return turns.come_back()

    turns.run(step)
    assert len(set(away)) == 2


def test_a_loop_ends_while_a_thread_is_away() -> None:
    turns = Turns()
    gate = threading.Event()
    began: list[bool] = []

    def step() -> bool:
        if began:
            return False
        began.append(True)
        turns.leave()
        assert gate.wait(WAIT_S)
        return turns.come_back()

    turns.run(step)
    assert not gate.is_set()
    gate.set()

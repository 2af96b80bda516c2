# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop's thread: it ends with its step, and another one goes on without a thread that is held up."""

import threading

import pytest

from evaluator.service.io_loop import LoopThreads

WAIT_S = 60.0


def test_the_loop_ends_with_the_step_that_says_so() -> None:
    steps: list[int] = []

    def step() -> bool:
        steps.append(len(steps))
        return len(steps) < 100

    LoopThreads(step).run()
    assert steps == list(range(100))


def test_an_error_of_a_step_ends_the_loop() -> None:
    def step() -> bool:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        LoopThreads(step).run()


@pytest.mark.parametrize("late_fault", [False, True])
def test_another_thread_goes_on_without_one_that_is_held_up(late_fault: bool) -> None:
    inside, release, left = threading.Event(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def step() -> bool:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            inside.set()
            assert release.wait(WAIT_S)
            left.set()
            if late_fault:
                raise ValueError("of nobody's concern any more")
            return True
        if len(threads) == 10:
            release.set()
            assert left.wait(WAIT_S)
            threads[0].join(WAIT_S)
            return False
        return True

    def replace() -> None:
        assert inside.wait(WAIT_S)
        loop.replace()

    loop = LoopThreads(step)
    helper = threading.Thread(target=replace)
    helper.start()
    loop.run()
    helper.join()
    first, *others = threads
    assert not first.is_alive()
    assert len(others) == 9
    assert set(others) == {others[0]} != {first}

# SPDX-License-Identifier: GPL-3.0-or-later
"""Random events for a lone search and for a pool's: none stalls, and none loses its report.

python -m tests.engine.search.loop.test_event_storm [EVENTS [SEED]]      (100,000 events take half an hour)
"""

import os
import sys
import threading
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import pytest

from engine._core import Game
from engine.evaluation.errors import NoEvaluatorError
from engine.search.control import SearchControl
from engine.search.limits import Clock, Limits
from engine.search.pool import PoolPlayer, SearchPool
from engine.search.session import Session
from tests.engine.network_operator import NEW, OLD, Operator, operated

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="evaluators listen on ipc addresses"),
    pytest.mark.integration,
]

STALL_S = 60.0
"""Longest time of a search that nothing holds up any more. A killed evaluator has started by then."""

TROUBLES = 1 / 300
"""Share of events that reload the network or kill the evaluator."""


def limits_of(random: Random) -> Limits:
    """Limits of each kind; most searches end by themselves within some milliseconds."""
    ponder = random.random() < 0.3
    kinds = [
        Limits(nodes=random.randint(1, 200), ponder=ponder),
        Limits(movetime_ms=random.randint(1, 8), ponder=ponder),
        Limits(clock=Clock(random.randint(60, 200), 100), ponder=ponder),
        Limits(depth=2),
        Limits(infinite=True),
    ]
    return random.choice(kinds)


def trouble(operator: Operator, random: Random) -> None:
    """Reload the evaluator's network, or kill the evaluator and start it again."""
    if random.random() < 0.7:
        operator.reload(random.choice([OLD, NEW]))
    else:
        operator.evaluator.kill()
        operator.evaluator.start()


def lone_storm(operator: Operator, events: int, seed: int) -> int:
    """Search one after the other, while another thread stops and hits. Return the number of reports."""
    random = Random(seed)
    reports = 0
    with closing(Session(operator.options)) as session:
        assert session.ready(STALL_S)
        while events > 0:
            limits, control = limits_of(random), SearchControl()
            control.pondering = limits.ponder
            found: Future[Any] = Future()

            def work(limits: Limits, control: SearchControl, found: Future[Any]) -> None:
                try:
                    found.set_result(session.search(limits, control=control))
                except NoEvaluatorError as error:
                    found.set_result(error)
                except BaseException as error:
                    found.set_exception(error)

            if random.random() < 0.1:
                session.new_game()
            threading.Thread(target=work, args=(limits, control, found)).start()
            for _ in range(random.randint(0, 2)):
                events -= 1
                threading.Event().wait(random.random() * 0.003)  # The moment is what is tried.
                if random.random() < TROUBLES:
                    trouble(operator, random)
                elif random.random() < 0.5:
                    control.ponder_hit()
                else:
                    control.stop()
            events -= 1
            if limits.infinite:
                control.stop()
            elif control.pondering:
                random.choice([control.stop, control.ponder_hit])()
            assert found.result(STALL_S) is not None, (limits, control.stopped)
            reports += 1
    return reports


def pool_storm(operator: Operator, events: int, seed: int) -> int:
    """Let searches and evaluations of a pool join and end. Return the number of reports."""
    random = Random(seed)
    reports = 0

    def settle(future: Future[Any]) -> None:
        nonlocal reports
        with suppress(NoEvaluatorError):
            assert future.result(STALL_S) is not None
        reports += 1

    with SearchPool() as pool:
        options = operator.options
        players = [pool.player(options, Random(seed + each)) for each in range(6)]
        pool.connections(options)
        running: dict[PoolPlayer, Future[Any]] = {}
        for _ in range(events):
            event = random.random()
            player = random.choice(players)
            if event < TROUBLES:
                trouble(operator, random)
            elif event < 0.1:
                settle(pool.evaluate([Game()], options))
            elif player not in running:
                limits = random.choice([Limits(nodes=random.randint(1, 300)), Limits(infinite=True)])
                running[player] = player.search(Game(), limits)
            elif event < 0.2 or running[player].done():
                player.stop()
                settle(running.pop(player))
                player.new_game()
            else:
                threading.Event().wait(random.random() * 0.001)
        for player, future in running.items():
            player.stop()
            settle(future)
    return reports


@pytest.mark.parametrize("storm", [lone_storm, pool_storm])
def test_no_search_stalls_in_a_storm_of_events(storm: Any, tmp_path: Path) -> None:
    with operated(tmp_path, "random") as operator:
        assert storm(operator, 400, 1) > 50


if __name__ == "__main__":
    count, seed = int(sys.argv[1]) if sys.argv[1:] else 100_000, int(sys.argv[2]) if sys.argv[2:] else 1
    for storm in (pool_storm, lone_storm):
        with TemporaryDirectory() as folder, operated(Path(folder), "random") as operated_one:
            began = perf_counter()
            reports = storm(operated_one, count // 2, seed)
            print(f"{storm.__name__}: {reports} reports in {perf_counter() - began:.0f} s", flush=True)

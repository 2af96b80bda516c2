# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions searched by worker processes, and what becomes of them when one, or the evaluator, is lost."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.analysis import scheduler as scheduling
from engine.analysis.scheduler import MOST_LOSSES
from engine.analysis.searching import Position
from engine.analysis.workers import SearchWorkers
from engine.evaluation.connection import keepalive, link
from engine.workers import processes
from tests.engine.analysis.recording import RANDOM, Answer, Conversation, scheduler
from tests.engine.evaluation.evaluators import RunningEvaluator

pytestmark = pytest.mark.integration

GAME = ["e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6"]
TURNS = list(range(len(GAME) + 1))


def workers(pid: int | None = None) -> list[psutil.Process]:
    """The worker processes of a process, of this one by default."""
    return [child for child in psutil.Process(pid).children() if "engine.workers.child" in child.cmdline()]


def is_last(identity: str) -> Any:
    return lambda answer: answer["id"] == identity and not answer.get("during_search", True)


def last_answers(talk: Conversation, count: int) -> list[Answer]:
    """So many answers that are no reports."""
    found: list[Answer] = []
    while len(found) < count:
        answer = talk.client.next()
        if not answer.get("during_search"):
            found.append(answer)
    return found


def test_positions_are_spread_over_the_workers() -> None:
    with scheduler(searches=4, workers=2) as made:
        talk = Conversation(made)
        for number in range(4):
            talk.say(id=str(number), infinite=True, report_every=0.05)
        seen: set[str] = set()
        while len(seen) < 4:
            seen.add(talk.client.next()["id"])
        assert len(workers()) == 2
        busy = [worker.cpu_times().user for worker in workers()]
        while not all(
            worker.cpu_times().user > before + 0.1 for worker, before in zip(workers(), busy, strict=True)
        ):
            talk.client.next()
        talk.say(id="all", action="terminate_all")
        ended = last_answers(talk, 5)
        assert {answer["id"] for answer in ended} == {"0", "1", "2", "3", "all"}
        assert sum(answer.get("terminated", False) for answer in ended) == 4
    assert workers() == []


@pytest.mark.parametrize(("processors", "expected"), [(1, 0), (2, 0), (8, 3)])
def test_workers_follow_from_the_processors_and_the_evaluators_speed(
    processors: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "usable_processors", lambda: processors)
    with scheduler(searches=6) as made:  # On an evaluator of a million positions a second.
        assert Conversation(made).ask(id="a", nodes=10)["root"]["visits"] == 10
        assert len(workers()) == expected


def test_priorities_hold_for_all_workers_together() -> None:
    with scheduler(searches=2, workers=2) as made:
        talk = Conversation(made)
        for identity in ("a", "b"):
            talk.say(id=identity, infinite=True, report_every=0.05)
        running: set[str] = set()
        while running != {"a", "b"}:
            running.add(talk.client.next()["id"])
        for number, priority in enumerate((0, 7, -2, 7, 3)):
            talk.say(id=str(number), nodes=20, priority=priority)
        talk.say(id="end", action="terminate", terminate_id="a")
        found = [answer["id"] for answer in last_answers(talk, 7)]
        assert [identity for identity in found if identity.isdecimal()] == ["1", "3", "4", "0", "2"]


def test_positions_of_a_worker_that_dies_are_begun_again_by_others() -> None:
    with scheduler(searches=6, workers=2) as made:
        talk = Conversation(made)
        talk.ask(id="first", nodes=10)
        talk.say(id="game", moves=GAME, analyze_turns=TURNS, nodes=4000, report_every=0.05)
        assert talk.client.next()["during_search"]
        killed = workers()[0]
        killed.kill()
        found = last_answers(talk, len(TURNS))
        assert sorted(answer["turn"] for answer in found) == TURNS
        assert {answer["root"]["visits"] for answer in found} == {4000}
        # Another one has taken its place.
        talk.say(id="long", infinite=True, report_every=0.05)
        while len(workers()) < 2:
            assert talk.client.next()["during_search"]
        assert killed.pid not in {worker.pid for worker in workers()}


def test_positions_survive_the_loss_of_all_workers() -> None:
    with scheduler(searches=6, workers=2) as made:
        talk = Conversation(made)
        talk.say(id="game", moves=GAME, analyze_turns=TURNS, nodes=4000, report_every=0.05)
        assert talk.client.next()["during_search"]
        for worker in workers():
            worker.kill()
        found = last_answers(talk, len(TURNS))
        assert sorted(answer["turn"] for answer in found) == TURNS
        assert {answer["root"]["visits"] for answer in found} == {4000}


def test_a_position_that_no_worker_survives_is_answered_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    class Deadly(SearchWorkers):
        """Loses whatever worker has a query called deadly."""

        def begin(self, position: Position) -> None:
            begun.append(position.query.id)
            if position.query.id == "deadly":
                self._post(lambda: self._listener.lost([position.number], "its process was killed"))
            else:
                super().begin(position)

    monkeypatch.setattr(scheduling, "SearchWorkers", Deadly)
    with scheduler(searches=2, workers=2) as made:
        talk = Conversation(made)
        answer = talk.ask(id="deadly", nodes=20)
        assert (answer["id"], answer["turn"]) == ("deadly", 0)
        assert answer["error"].endswith("lost 3 times: its process was killed")
        assert begun == ["deadly"] * MOST_LOSSES
        assert talk.ask(id="next", nodes=20)["root"]["visits"] == 20


def test_stopped_searches_do_not_restart_when_workers_die() -> None:
    with scheduler(searches=2, workers=2) as made:
        talk = Conversation(made)
        talk.say(id="a", infinite=True, report_every=0.05)
        talk.client.next()
        for worker in workers():
            worker.suspend()  # They do not hear what they are told.
        talk.say(id="end", action="terminate_all")
        talk.client.until(lambda answer: answer["id"] == "end")
        for worker in workers():
            worker.kill()
        *_, answer = talk.client.until(is_last("a"))
        assert answer["no_results"]


def test_searches_share_the_memory_that_the_options_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Position] = []

    class Recording(SearchWorkers):
        def begin(self, position: Position) -> None:
            begun.append(position)
            super().begin(position)

    monkeypatch.setattr(scheduling, "SearchWorkers", Recording)
    with scheduler(RANDOM.changed(tree_memory=90, hash=12), searches=3, workers=2) as made:
        talk = Conversation(made)
        talk.say(id="game", moves=GAME, analyze_turns=TURNS, nodes=50)
        last_answers(talk, len(TURNS))
    assert {(position.tree_memory, position.hash) for position in begun} == {(30, 4)}


def test_an_evaluator_of_its_own_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "KNOCK_SECONDS", 0.2)
    monkeypatch.setattr(keepalive, "PATIENCE_SECONDS", 2.0)
    with scheduler(searches=2, workers=2) as made:
        talk = Conversation(made)
        talk.ask(id="first", nodes=10)
        (pid,) = made.evaluator_pids()
        psutil.Process(pid).suspend()
        assert talk.ask(id="a", nodes=500)["root"]["visits"] == 500
        assert made.evaluator_pids() != [pid]


def test_an_evaluator_of_somebody_else_s_may_go_and_come_back(tmp_path: Path) -> None:
    with RunningEvaluator(tmp_path, "a") as evaluator:
        options = RANDOM.changed(evaluator=evaluator.address)
        with scheduler(options, searches=4, workers=2) as made:
            talk = Conversation(made)
            talk.say(id="game", moves=GAME, analyze_turns=TURNS, nodes=3000, report_every=0.05)
            assert talk.client.next()["during_search"]
            evaluator.kill()
            evaluator.start()
            found = last_answers(talk, len(TURNS))
            assert {answer["root"]["visits"] for answer in found} == {3000}
            assert len(workers()) == 2


def test_without_an_evaluator_each_position_is_answered_and_the_next_query_asks_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RECONNECT_SECONDS", 0.5)  # Workers keep to ten.
    with RunningEvaluator(tmp_path, "a") as evaluator:
        options = RANDOM.changed(evaluator=evaluator.address)
        with scheduler(options, searches=2, workers=2) as made:
            talk = Conversation(made)
            talk.ask(id="first", nodes=10)
            evaluator.kill()
            talk.say(id="game", moves=GAME, analyze_turns=TURNS, nodes=100)
            found = last_answers(talk, len(TURNS))
            assert sorted(answer["turn"] for answer in found) == TURNS
            assert all("error" in answer or "ended_early" in answer for answer in found)
            evaluator.start()
            while "error" in (answer := talk.ask(id="again", nodes=100)):
                pass
            assert answer["root"]["visits"] == 100


# -- the program ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_no_process_outlives_the_program(name: str) -> None:
    from tests.engine.analysis.test_command import Program

    number = signal.Signals[name]
    program = Program("--workers", "2", "--searches", "2")
    with program.process:
        program.say(id="a", infinite=True, report_every=0.05)
        program.say(id="b", infinite=True, report_every=0.05)
        program.next()
        family = psutil.Process(program.process.pid).children(recursive=True)
        assert len([child for child in family if "engine.workers.child" in child.cmdline()]) == 2
        os.kill(program.process.pid, number)
        assert program.process.stdout is not None
        program.process.stdout.read()
        assert program.process.wait(60) in (130, 143, -number)
    gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    assert len(gone) == len(family)


def test_the_end_of_input_finishes_what_is_queued_in_workers() -> None:
    from tests.engine.analysis.test_command import run

    answers, errors = run(
        [
            {"id": "a", "moves": GAME, "analyze_turns": TURNS, "nodes": 100},
            {"id": "endless", "infinite": True},
        ],
        *("--workers", "2", "--searches", "4"),
    )
    assert sorted(answer["turn"] for answer in answers if answer["id"] == "a") == TURNS
    assert {answer["root"]["visits"] for answer in answers if answer["id"] == "a"} == {100}
    assert [answer["turn"] for answer in answers if answer["id"] == "endless"] == [0]
    assert "4 positions at a time are searched by 2 processes" in errors


def test_clients_of_a_socket_are_answered_by_workers() -> None:
    pytest.importorskip("websockets")
    from websockets.sync.client import connect

    from tests.engine.analysis.test_sockets import service

    with service("--workers", "2", "--searches", "4") as (address, process), connect(address) as client:
        for number in range(6):
            client.send(json.dumps({"id": str(number), "nodes": 50}))
        found = [json.loads(client.recv(60)) for _ in range(6)]
        assert sorted(answer["id"] for answer in found) == list("012345")
        assert {answer["root"]["visits"] for answer in found} == {50}
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        assert process.wait(60) == 0
        psutil.wait_procs(children, timeout=60)
        assert not [child for child in children if child.is_running()]

# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients are told besides answers: warnings of doubtful messages, and the state of the evaluator."""

from engine.apps.analysis.scheduler import QueryScheduler
from engine.apps.analysis.settings import AnalysisSettings
from tests.engine.apps.analysis.recording import RANDOM, Conversation, scheduler


def test_a_key_that_comes_twice_is_warned_of_once() -> None:
    with scheduler(own=True) as made:
        talk = Conversation(made)
        talk.scheduler.receive(talk.client, '{"id": "a", "nodes": 5, "nodes": 6, "nodes": 7}')
        warning = talk.client.next()
        assert (warning["field"], warning["warning"]) == (
            "nodes",
            "the key 'nodes' came twice, the last value counts",
        )
        assert talk.client.next()["root"]["visits"] == 7


def test_networks_are_starting_until_there_is_an_evaluator() -> None:
    made = QueryScheduler(RANDOM, AnalysisSettings())
    talk = Conversation(made)
    try:
        before = talk.ask(id="n", action="query_networks")
        assert (before["ready"], before["state"]) == (False, "starting")
        made.start()
        talk.ask(id="a", nodes=1)
        after = talk.ask(id="n", action="query_networks")
        assert (after["ready"], after["state"], len(after["networks"])) == (True, "ready", 1)
    finally:
        made.close()

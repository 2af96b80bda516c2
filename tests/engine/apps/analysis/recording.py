# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of analysis share: a client that keeps its answers, and a scheduler that it talks to. Every
answer is held against the schema."""

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import jsonschema

from engine.apps.analysis.scheduler import QueryScheduler
from engine.apps.analysis.schema import schema
from engine.apps.analysis.settings import AnalysisSettings
from engine.commands.analysis import default_options
from engine.options import Options
from tests.engine.evaluation.evaluators import shared_evaluator

RANDOM = default_options().changed(backend="random", hash=8, tree_memory=64)

ANSWER = jsonschema.Draft202012Validator({**schema(), "anyOf": [{"$ref": "#/$defs/answer"}]})

Answer = dict[str, Any]


class RecordingClient:
    """A client of a scheduler. Answers are taken with `next`, in the order in which they came."""

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.congested = False
        self.is_done = threading.Event()

    def send(self, answer: bytes) -> None:
        received = json.loads(answer.decode("ascii"))
        ANSWER.validate(received)
        self.answers.put(received)

    def done(self) -> None:
        self.is_done.set()

    def next(self) -> Answer:
        return self.answers.get(timeout=60)

    def until(self, is_last: Callable[[Answer], bool]) -> list[Answer]:
        """The answers up to the first one of a kind, that one included."""
        found = [self.next()]
        while not is_last(found[-1]):
            found.append(self.next())
        return found


class Conversation:
    """A client and the scheduler that it asks."""

    def __init__(self, scheduler: QueryScheduler, client: RecordingClient | None = None) -> None:
        self.scheduler = scheduler
        self.client = client or RecordingClient()

    def say(self, **message: Any) -> None:
        self.scheduler.receive(self.client, json.dumps(message))

    def ask(self, **message: Any) -> Answer:
        """The first answer to a message, which must be the only one under way."""
        self.say(**message)
        return self.client.next()


@contextmanager
def scheduler(options: Options = RANDOM, *, own: bool = False, **settings: Any) -> Iterator[QueryScheduler]:
    """A scheduler. own: with an evaluator of its own."""
    said: list[str] = []
    made = QueryScheduler(options, AnalysisSettings(**settings), log=said.append)
    with nullcontext() if own else shared_evaluator(), closing(made):
        made.start()
        yield made
    assert not [text for text in said if "fault" in text]

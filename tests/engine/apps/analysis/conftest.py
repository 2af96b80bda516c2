# SPDX-License-Identifier: GPL-3.0-or-later
"""A scheduler for the tests of a module, and a conversation with it for each test."""

from collections.abc import Iterator

import pytest

from engine.apps.analysis.scheduler import QueryScheduler
from tests.engine.apps.analysis.recording import Conversation, scheduler


@pytest.fixture(scope="module")
def shared_scheduler() -> Iterator[QueryScheduler]:
    with scheduler(own=True) as made:
        yield made


@pytest.fixture
def talk(shared_scheduler: QueryScheduler) -> Iterator[Conversation]:
    conversation = Conversation(shared_scheduler)
    yield conversation
    shared_scheduler.leave(conversation.client)

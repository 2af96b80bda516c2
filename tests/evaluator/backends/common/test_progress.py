# SPDX-License-Identifier: GPL-3.0-or-later
"""What a start announces, and who hears it."""

import logging
from collections.abc import Iterator

import pytest

from evaluator.backends.common import progress


@pytest.fixture
def quiet_log() -> Iterator[None]:
    """The log as a program at the level of warnings has it, and as it was afterwards."""
    level, propagate, handlers = progress.log.level, progress.log.propagate, list(progress.log.handlers)
    root_level = logging.getLogger().level
    logging.getLogger().setLevel(logging.WARNING)
    yield
    logging.getLogger().setLevel(root_level)
    progress.log.setLevel(level)
    progress.log.propagate, progress.log.handlers = propagate, handlers


@pytest.mark.parametrize(("every_s", "heard"), [(0.0, ["one", "two"]), (1000.0, [])])
def test_a_listener_hears_what_takes_longer_than_a_moment(
    every_s: float,
    heard: list[str],
    quiet_log: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", every_s)
    told: list[str] = []
    progress.listen(told.append)
    progress.announce("one")
    progress.announce("two")
    assert told == heard
    assert caplog.text == ""


def test_without_a_listener_it_is_a_message_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        progress.announce("measuring")
    assert "measuring" in caplog.text

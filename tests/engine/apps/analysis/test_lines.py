# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of input on their way to the scheduler."""

import io
from collections.abc import Callable
from typing import cast

from engine.apps.analysis.lines import LINES_READ_AHEAD, LineClient, read_lines
from engine.apps.analysis.scheduler import QueryScheduler
from engine.apps.analysis.settings import AnalysisSettings


class SlowScheduler:
    """Reads nothing until as many lines as it is ever given at a time are there."""

    settings = AnalysisSettings()

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.most = 0
        self._unread: list[Callable[[], None]] = []

    def receive(self, _client: object, line: bytes, then: Callable[[], None]) -> None:
        self.lines.append(line)
        self._unread.append(then)
        self.most = max(self.most, len(self._unread))
        if len(self._unread) == LINES_READ_AHEAD:
            while self._unread:
                self._unread.pop()()

    def end(self, _client: object, *, at_once: bool) -> None:
        self.lines.append(b"end")


def test_lines_wait_to_be_read_where_they_come_from() -> None:
    """Whoever writes faster than queries are read does not fill the memory with them."""
    scheduler = SlowScheduler()
    lines = [b"%d" % number for number in range(10 * LINES_READ_AHEAD)]
    client = LineClient(io.BytesIO(), 1, lambda client: None)
    read_lines(cast(QueryScheduler, scheduler), client, io.BytesIO(b"\n".join(lines)))
    assert scheduler.lines == [*lines, b"end"]
    assert scheduler.most == LINES_READ_AHEAD

# SPDX-License-Identifier: GPL-3.0-or-later
"""A view of a campaign for tests."""

from collections.abc import Callable
from typing import Any

from engine.apps.campaign.display import QuietView


class Recorder(QuietView):
    """Remembers the games and notes that it is shown. then: called when `after` games are over."""

    def __init__(self, then: Callable[[], Any] = lambda: None, *, after: int = 1) -> None:
        self.records: list[Any] = []
        self.notes: list[str] = []
        super().__init__(self.notes.append)
        self._then, self._after = then, after

    def game_over(self, state: Any, entry: Any) -> None:
        self.records.append(entry)
        if len(self.records) == self._after:
            self._then()

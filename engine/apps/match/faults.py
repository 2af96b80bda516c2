# SPDX-License-Identifier: GPL-3.0-or-later
"""Players that fail in game after game, for which a match ends."""

from __future__ import annotations

from collections.abc import Sequence

from engine.apps.games.record import GameRecord, Reason
from protocol.common.printing import ReportedError

FAULTS_IN_A_ROW = 10
"""Consecutive games lost by a player's disconnects or stalls after which the match fails."""


class MatchError(ReportedError, RuntimeError):
    """The match cannot continue. Its games are kept. The message gives the reason."""


class Faults:
    """Count each player's consecutive disconnects and stalls. names: of the players, by number."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._faults = [0] * len(names)
        self._failure = ""

    def count(self, record: GameRecord) -> None:
        """Count a game."""
        failed = record.reason in (Reason.DISCONNECT, Reason.STALL)
        loser = record.black if record.result == "1-0" else record.white
        for player in (record.white, record.black):
            self._faults[player] = self._faults[player] + 1 if failed and player == loser else 0
        if self._faults[loser] >= FAULTS_IN_A_ROW:
            self._failure = (
                f"{self._names[loser]} failed in {FAULTS_IN_A_ROW} games in a row, "
                f"in the last one by {record.reason}{': ' + record.detail if record.detail else ''}"
            )

    def check(self) -> None:
        """Raise MatchError if a player fails in every game."""
        if self._failure:
            raise MatchError(self._failure)

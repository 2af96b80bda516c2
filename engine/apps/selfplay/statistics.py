# SPDX-License-Identifier: GPL-3.0-or-later
"""Totals of self-play: games, positions, and ends of games."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from engine.apps.games.referee import win_for
from engine.apps.selfplay.archive import GameEntry


@dataclass(slots=True)
class Totals:
    """Totals of games. positions: training records. resign_checked: playthrough games in which a side would
    have resigned. resign_wrong: those that it did not lose."""

    games: int = 0
    positions: int = 0
    plies: int = 0
    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    resign_checked: int = 0
    resign_wrong: int = 0

    def add(self, entry: GameEntry) -> None:
        """Count a game."""
        self.games += 1
        self.positions += entry.positions
        self.plies += entry.plies
        self.results[entry.result] += 1
        self.reasons[str(entry.reason)] += 1
        if entry.playthrough and entry.would_resign is not None:
            self.resign_checked += 1
            self.resign_wrong += entry.result != win_for(entry.would_resign == "black")

    def data(self) -> dict[str, Any]:
        """Return the totals as JSON data."""
        return {
            "games": self.games,
            "positions": self.positions,
            "mean_plies": self.plies / max(1, self.games),
            "white_wins": self.results["1-0"],
            "draws": self.results["1/2-1/2"],
            "black_wins": self.results["0-1"],
            "reasons": dict(self.reasons.most_common()),
            "resign_checked": self.resign_checked,
            "resign_wrong": self.resign_wrong,
        }

# SPDX-License-Identifier: GPL-3.0-or-later
"""Use of time budgets by searches of real games: the data for the model of search.time_management.

    python -m benchmarks.strength.clock_use [WAY] [--games 6] [--control 10+0.1] [--backend onnx] [--seed 1]
                                            [--json]

The engine plays itself from shipped openings on real clocks. Each side has its own tree and evaluator, which
rest while the other thinks. WAY: options written Key=Value,Key=Value. Reports: how many searches ended at
once (before a tenth of their budget), early (before 95 %), at its end or beyond it, and the share they used;
how much of the tree the player's next search reused, and how often almost nothing (below 2 %); the clock time
of a move in addition to its search, in this process; and the remaining clock at the end of a game. Moves
without a choice (one legal move) and searches that proved a mate are excluded from budgets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from random import Random
from statistics import fmean
from time import perf_counter
from typing import Any

from benchmarks.common.command_line import count
from benchmarks.strength.batch_strength import in_way
from engine.games.openings import Opening, OpeningSettings, read_openings
from engine.match.timecontrol import GameClock, TimeControl
from engine.options import Options
from engine.search.limits import Clock, Limits
from engine.search.time.budget import Spent, TimeBudget
from engine.search.time.keeper import TimeKeeper
from engine.session import Session

READY_S = 180.0
"""Timeout for an evaluator's start."""

MOST_PLIES = 300
"""Plies after which a game ends undecided."""

AT_ONCE, EARLY, IN_TIME = 0.1, 0.95, 1.05
"""Shares of a budget up to which a search ended at once, early, and on time."""

NOTHING = 0.02
"""A smaller share of the last tree counts as nothing."""


@dataclass(frozen=True, slots=True)
class Searched:
    """One search on a clock.

    budget_ms: soft budget. used_ms: until the move. kept: share of the visits of the player's last tree; None
    for its first move. free: there was a choice and no proven mate. visits: of the root at the end.
    unseen_ms: clock time in addition to the search.
    """

    budget_ms: float
    used_ms: float
    kept: float | None
    free: bool
    visits: int
    unseen_ms: float


@dataclass(frozen=True, slots=True)
class Played:
    """One game: its searches, and the remaining time of both clocks, in percent of the initial time."""

    searches: list[Searched]
    left: list[float]


class RecordingKeeper(TimeKeeper):
    """Records the last budget and its use."""

    def __init__(self) -> None:
        super().__init__()
        self.granted = TimeBudget(0.0, 0.0)
        self.spent = Spent(0.0, 0.0, 0, 0)

    def budget(self, options: Options, **situation: Any) -> TimeBudget:
        self.granted = super().budget(options, **situation)
        return self.granted

    def finished(self, spent: Spent, late_ms: float) -> None:
        self.spent = spent
        super().finished(spent, late_ms)


class Player:
    """One side: a session, and its clock."""

    def __init__(self, options: Options) -> None:
        self._keeper = RecordingKeeper()
        self._session = Session(options, keeper=self._keeper)
        self._session.ready(READY_S)
        self._visits = 0
        self.clock = GameClock(TimeControl(base_ms=1))

    def new_game(self, control: TimeControl) -> None:
        self._session.new_game()
        self._visits = 0
        self.clock = GameClock(control)

    def move(self, opening: Opening, moves: Sequence[str]) -> tuple[str, Searched] | None:
        """Return the move after an opening and further moves, and its search; None if the game is over."""
        session, keeper = self._session, self._keeper
        session.set_position(opening.fen, [*opening.moves, *moves])
        if session.game.result()[0] != "undecided":
            return None
        remaining, increment = round(self.clock.remaining_ms or 0), self.clock.control.increment_ms
        began = perf_counter()
        report = session.search(
            Limits(clock=Clock(remaining, remaining, increment, increment)), started=began
        )
        elapsed = 1000 * (perf_counter() - began)
        self.clock.spend(elapsed)
        spent = keeper.spent
        kept = (spent.visits - report.playouts) / self._visits if self._visits else None
        self._visits = spent.visits
        free = len(session.game.legal_moves()) > 1 and not (report.lines and report.lines[0].mate)
        assert report.best_move is not None
        return report.best_move, Searched(
            keeper.granted.soft_ms, spent.time_ms, kept, free, spent.visits, elapsed - spent.time_ms
        )

    def close(self) -> None:
        self._session.close()


def games(players: Sequence[Player], openings: Sequence[Opening], control: TimeControl) -> Iterator[Played]:
    """Play a game from each opening."""
    for number, opening in enumerate(openings, 1):
        for player in players:
            player.new_game(control)
        moves: list[str] = []
        searches: list[Searched] = []
        while len(moves) < MOST_PLIES:
            made = players[len(moves) % 2].move(opening, moves)
            if made is None:
                break
            moves.append(made[0])
            searches.append(made[1])
        yield Played(
            searches, [100 * (player.clock.remaining_ms or 0) / (control.base_ms or 1) for player in players]
        )
        print(f"{number} of {len(openings)} games", end="\r", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of all searches; shares are in percent. used, used_early, used_beyond: mean share of the budget
    of free searches, and of those that ended early or went beyond it."""

    games: int
    searches: int
    free: int
    at_once: float
    early: float
    at_end: float
    beyond: float
    used: float
    used_early: float
    used_beyond: float
    kept: float
    kept_nothing: float
    visits: float
    unseen_ms: float
    left: float

    @classmethod
    def of(cls, games: Sequence[Played]) -> Summary:
        searches = [searched for game in games for searched in game.searches]
        uses = [100 * each.used_ms / each.budget_ms for each in searches if each.free and each.budget_ms > 0]
        at_once, early, at_end, beyond = (
            [use for use in uses if low <= use < high]
            for low, high in pairwise((0, 100 * AT_ONCE, 100 * EARLY, 100 * IN_TIME, float("inf")))
        )
        kept = [each.kept for each in searches if each.kept is not None]
        return cls(
            games=len(games),
            searches=len(searches),
            free=len(uses),
            at_once=100 * len(at_once) / len(uses),
            early=100 * len(early) / len(uses),
            at_end=100 * len(at_end) / len(uses),
            beyond=100 * len(beyond) / len(uses),
            used=fmean(uses),
            used_early=fmean(early or [0.0]),
            used_beyond=fmean(beyond or [0.0]),
            kept=100 * fmean(kept),
            kept_nothing=100 * fmean(share < NOTHING for share in kept),
            visits=fmean(each.visits for each in searches),
            unseen_ms=fmean(each.unseen_ms for each in searches),
            left=fmean(left for game in games for left in game.left),
        )

    def __str__(self) -> str:
        return "\n".join(
            (
                f"{self.games} games, {self.searches} searches of {self.visits:,.0f} visits, "
                f"{self.free} with a choice and without a proof",
                f"ended at once {self.at_once:.0f} %, early {self.early:.0f} % ({self.used_early:.0f} %), at "
                f"the end {self.at_end:.0f} %, beyond {self.beyond:.0f} % ({self.used_beyond:.0f} %)",
                f"used {self.used:.0f} % of their budgets",
                f"kept {self.kept:.0f} % of the tree before, next to nothing in {self.kept_nothing:.0f} %",
                f"unseen {self.unseen_ms:.1f} ms a move; left at the end {self.left:.0f} % of the clock",
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("way", nargs="?", default="", metavar="WAY", help="options (default: the defaults)")
    parser.add_argument("--games", type=count, default=6, metavar="N", help="default 6")
    parser.add_argument("--control", default="10+0.1", help="default 10+0.1")
    parser.add_argument("--backend", default="onnx", help="default onnx")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of openings (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    control = TimeControl(*TimeControl.parse_clock(arguments.control))
    openings = read_openings(OpeningSettings(), arguments.games, seed=Random(arguments.seed).getrandbits(32))
    options = in_way(arguments.way, Options(backend=arguments.backend, threads=1))
    players = [Player(options), Player(options)]
    try:
        summary = Summary.of(list(games(players, openings, control)))
    finally:
        for player in players:
            player.close()
    print(json.dumps(asdict(summary)) if arguments.json else summary)


if __name__ == "__main__":
    main()

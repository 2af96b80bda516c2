# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays the ladder as a campaign of a match: rounds of games between chosen pairs, a fit before each.

The journal is that of a round-robin match in which most pairings stay short. A game has the number that
such a match gives it, so the journal alone says what was played, and a killed run resumes from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.strength.ladder.pairing import PAIR_GAMES, GameTimes, PairingRules, choose_pairs
from benchmarks.strength.ladder.players import LadderPlayer
from benchmarks.strength.ladder.scale import OpeningResult, Results
from engine.apps.campaign.campaign import RunEnding
from engine.apps.campaign.display import QuietView
from engine.apps.games.record import GameOutcome
from engine.apps.match.adjudication import Adjudication, DrawRule, ResignRule
from engine.apps.match.campaign import MatchCampaign
from engine.apps.match.config import MatchConfig

OPENINGS = 2000
"""Rounds of the schedule: the included book has so many openings."""

ADJUDICATION = Adjudication(
    resign=ResignRule(score=1000, moves=5, two_sided=True),
    draw=DrawRule(from_move=40, moves=8, score=10),
    max_moves=250,
)

TIME_MARGIN_MS = 1000
"""Overdrawn time that is forgiven: the ladder measures play, not punctuality on a loaded machine."""


class Ladder:
    """The games so far, and which come next. Belongs to the event loop."""

    def __init__(self, players: Sequence[LadderPlayer], config: MatchConfig, games: int) -> None:
        """config: of `match_config` below. games: wanted for each player."""
        self.players = players
        self.config = config
        self.games = games
        self.deadline = float("inf")
        self.faults = [0] * len(players)
        labels = {index: player.label for index, player in enumerate(players) if player.label is not None}
        self._rules = PairingRules(np.array([player.guess for player in players]), labels, games)
        self._times = GameTimes(np.array([player.seconds for player in players]))
        self._openings: dict[int, OpeningResult] = {}
        self._counted: set[int] = set()
        self._games = np.zeros((len(players), len(players)))
        self._points = np.zeros_like(self._games)
        self._pending: set[int] = set()
        self._queue: deque[int] = deque()

    # -- results -----------------------------------------------------------------------------------------

    def add(self, game: GameOutcome) -> None:
        """Count a game. Raises ValueError if it was counted before or is another one than scheduled."""
        scheduled = self.config.schedule[game.number]
        if game.number in self._counted:
            raise ValueError(f"game {game.number + 1} is there twice")
        if (game.white, game.black) != (scheduled.white, scheduled.black):
            raise ValueError(f"game {game.number + 1} is another one than the schedule says")
        self._counted.add(game.number)
        self._pending.discard(game.number)
        first, second = sorted((game.white, game.black))
        points = game.white_points if game.white == first else 1 - game.white_points
        before = self._openings.get(game.pair, OpeningResult(first, second, 0.0, 0))
        self._openings[game.pair] = OpeningResult(first, second, before.points + points, before.games + 1)
        self._points[first, second] += points
        self._points[second, first] += 1 - points
        self._games[first, second] += 1
        self._games[second, first] += 1
        self._times.add(first, second, game.seconds)
        if game.reason.is_failure and game.white_points != 0.5:
            self.faults[game.black if game.white_points == 1 else game.white] += 1

    @property
    def played(self) -> int:
        """Games counted."""
        return len(self._counted)

    @property
    def missing(self) -> int:
        """Games that players are short of the wanted number, in all."""
        return int(np.maximum(0, self.games - self._games.sum(axis=1)).sum())

    @property
    def results(self) -> Results:
        return Results(tuple(self._openings.values()), self._games, self._points)

    # -- the next games ----------------------------------------------------------------------------------

    def numbers(self, games_per_round: int) -> Iterator[int]:
        """Yield the numbers of the games to play, until no pair can or needs to play, or the deadline passes.
        games_per_round: games between two fits."""
        self._pending.clear()
        self._queue.clear()
        self._queue.extend(self._other_games())
        while perf_counter() < self.deadline:
            if not self._queue:
                self._queue.extend(self._round(max(1, games_per_round // PAIR_GAMES)))
            if not self._queue:
                return
            number = self._queue.popleft()
            self._pending.add(number)
            yield number

    def _other_games(self) -> list[int]:
        """Return the unplayed games of openings with one game."""
        pairs = (pair for pair, opening in self._openings.items() if opening.games < PAIR_GAMES)
        games = (PAIR_GAMES * pair + second for pair in pairs for second in range(PAIR_GAMES))
        return [number for number in games if number not in self._counted]

    def _round(self, pairs: int) -> list[int]:
        pending = np.zeros_like(self._games)
        for number in self._pending:
            game = self.config.schedule[number]
            pending[game.white, game.black] += 1
            pending[game.black, game.white] += 1
        chosen = choose_pairs(
            self._rules,
            Results((), self._games, self._points),
            pending,
            self._times.seconds(),
            pairs,
            self.deadline - perf_counter(),
        )
        numbers: list[int] = []
        taken = {number // PAIR_GAMES for number in self._pending} | set(self._openings)
        for first, second in chosen:
            pair = self._free_pair(first, second, taken)
            if pair is None:
                continue
            taken.add(pair)
            numbers += [PAIR_GAMES * pair + game for game in range(PAIR_GAMES)]
        return numbers

    def _free_pair(self, first: int, second: int, taken: set[int]) -> int | None:
        """Return the number of an unplayed opening of two players. Openings repeat as late as possible."""
        pairings = self.config.schedule.pairings
        place, rounds = pairings.index((first, second)), self.config.schedule.rounds
        for later in range(rounds):
            pair = (len(taken) + later) % rounds * len(pairings) + place
            if pair not in taken:
                return pair
        return None


class LadderCampaign(MatchCampaign):
    """Those games of the match that the ladder chooses. report: returns the summary."""

    def __init__(self, ladder: Ladder, report: Callable[[], Mapping[str, Any] | None]) -> None:
        super().__init__(ladder.config)
        self._ladder = ladder
        self._report = report

    def add(self, outcome: GameOutcome) -> None:
        self._ladder.add(outcome)

    def over(self) -> bool:
        """Raises MatchError if a player does nothing but fail."""
        self._faults.check()
        return False

    def summary(self) -> Mapping[str, Any] | None:
        return self._report()


def match_config(
    players: Sequence[LadderPlayer], folder: Path, *, seed: int, concurrency: int, workers: int
) -> MatchConfig:
    """Return the round-robin match whose games the ladder takes."""
    return MatchConfig(
        tuple(player.config for player in players),
        event="Wavefront ladder",
        games=PAIR_GAMES * OPENINGS,
        seed=seed,
        concurrency=concurrency,
        workers=workers,
        time_margin_ms=TIME_MARGIN_MS,
        adjudication=ADJUDICATION,
        output=str(folder / "ladder"),
    )


async def play_ladder(
    ladder: Ladder,
    campaign: LadderCampaign,
    view: QuietView,
    *,
    minutes: float,
    games_per_round: int,
) -> RunEnding:
    """Play until each player has its games or no pair may play, the minutes are over, or it is interrupted.

    No game begins after `minutes` (0: no limit); running games are finished. Raises what `campaign.run`
    raises. campaign: open.
    """
    await campaign.prepare(view.note)
    ending: RunEnding = "finished"
    if minutes:
        ladder.deadline = perf_counter() + 60 * minutes
    played = -1
    # A round may begin while the last games run that would allow others, so look again after them.
    while (
        ending == "finished"
        and ladder.missing
        and perf_counter() < ladder.deadline
        and ladder.played > played
    ):
        played = ladder.played
        ending = await campaign.play(view, ladder.numbers(games_per_round))
    return "time" if ending == "finished" and perf_counter() >= ladder.deadline else ending

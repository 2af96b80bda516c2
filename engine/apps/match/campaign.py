# SPDX-License-Identifier: GPL-3.0-or-later
"""A match as a campaign: it ends when all games are played or the SPRT decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from engine.apps.campaign.archive import GameCampaign, GameFiles
from engine.apps.games.pgn import pgn_text
from engine.apps.games.record import GameOutcome, GameRecord, Reason, as_result
from engine.apps.match.config import MatchConfig
from engine.apps.match.job import MatchJob
from engine.apps.match.results.standings import Standings
from engine.apps.match.summary import summary
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


class MatchCampaign(GameCampaign[GameRecord, GameRecord, GameOutcome]):
    """The games of a match. outcomes: in counted order."""

    command = "match"
    name = "match"

    def __init__(self, config: MatchConfig) -> None:
        super().__init__(
            range(len(config.schedule)),
            config.files.summary,
            concurrency=config.concurrency,
            workers=config.workers,
        )
        self.config = config
        self.standings = Standings(config.schedule, config.sprt)
        self.outcomes: list[GameOutcome] = []
        self._faults = Faults([player.name for player in config.players])

    async def prepare(self, note: Callable[[str], None]) -> None:
        """Raises OpeningError."""
        self.job = await MatchJob.read(self.config, note)

    def files(self) -> GameFiles:
        files = self.config.files
        return GameFiles(
            journal=files.journal,
            pgn=files.pgn,
            companions=(files.summary,),
            header={
                "journal": f"wavefront {self.command}",
                "event": self.config.event,
                "identity": self.config.identity(),
            },
            kind=f"a {self.name}",
            others=f"{files.journal} belongs to another {self.name}; choose another --output, or --restart "
            "to discard its games",
        )

    def resume(self, games: Sequence[GameOutcome]) -> None:
        """Raises MatchError if the games do not fit the match."""
        journal, scheduled = self.config.files.journal, len(self.config.schedule)
        last = max((game.number for game in games), default=-1)
        if last >= scheduled:
            raise MatchError(
                f"{journal} holds game {last + 1}, and the match is to have {scheduled}: raise the number "
                "of games"
            )
        for game in games:
            try:
                self.add(game)
            except ValueError as error:
                raise MatchError(f"{journal}: {error}") from None

    def write(self, game: GameRecord) -> GameRecord:
        self.keep(self.pgn(game), self.entry(game))
        return game

    def pgn(self, record: GameRecord) -> str:
        """Return a game as PGN."""
        players = self.config.players
        return pgn_text(
            record,
            [player.name for player in players],
            [str(player.time) for player in players],
            event=self.config.event,
            games_per_pair=self.config.schedule.games_per_pair,
        )

    def entry(self, record: GameRecord) -> dict[str, Any]:
        """Return a game's entry in the journal."""
        entry = asdict(record.outcome)
        entry["seconds"] = round(record.seconds, 3)
        return entry | {"opening": record.opening, "detail": record.detail}

    def read(self, entry: Mapping[str, Any]) -> GameOutcome:
        """Return the game of an entry. Raises KeyError, TypeError and ValueError."""
        return GameOutcome(
            number=int(entry["number"]),
            pair=int(entry["pair"]),
            white=int(entry["white"]),
            black=int(entry["black"]),
            result=as_result(entry["result"]),
            reason=Reason(entry["reason"]),
            plies=int(entry["plies"]),
            seconds=float(entry["seconds"]),
        )

    def add(self, outcome: GameOutcome) -> None:
        """Count a game. Raises ValueError if it does not fit the schedule."""
        self.standings.add(outcome)
        self.outcomes.append(outcome)

    def count(self, entry: GameRecord) -> None:
        self.add(entry.outcome)
        self._faults.count(entry)

    def over(self) -> bool:
        """Raises MatchError if a player fails repeatedly."""
        self._faults.check()
        return self.standings.over

    def summary(self) -> Mapping[str, Any] | None:
        if not self.outcomes:
            return None
        return summary(self.config, self.standings, self.throughput)

# SPDX-License-Identifier: GPL-3.0-or-later
"""A match as a campaign: it ends when all games are played or the SPRT decides.

A PGN has the games for people. The journal defines which games count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.games.archive import GameArchive
from engine.games.campaign import Campaign
from engine.games.pgn import pgn_text
from engine.games.record import GameOutcome, GameRecord, Reason, as_result
from engine.match.config import MatchConfig
from engine.match.faults import Faults, MatchError
from engine.match.job import MatchJob
from engine.match.results.standings import Standings
from engine.match.summary import summary


class MatchCampaign(Campaign[GameRecord, GameRecord]):
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
        self._archive: GameArchive[GameOutcome] | None = None
        self._job: MatchJob | None = None

    def identity(self) -> dict[str, Any]:
        """Return all dependencies of the games."""
        return self.config.identity()

    def outputs(self) -> tuple[Path, ...]:
        """Return the files next to the journal and the PGN."""
        return (self.config.files.summary,)

    async def prepare(self, note: Callable[[str], None]) -> None:
        """Raises OpeningError."""
        self._job = await MatchJob.read(self.config, note)

    async def job(self, note: Callable[[str], None]) -> MatchJob:
        assert self._job is not None
        return self._job

    def open(
        self,
        *,
        restart: bool = False,
        overwrite: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> Collection[int]:
        """Raises MatchError if the games do not fit the match."""
        files = self.config.files
        self._archive = GameArchive(
            files.journal,
            files.pgn,
            {
                "journal": f"wavefront {self.command}",
                "event": self.config.event,
                "identity": self.identity(),
            },
            self.read,
            kind=f"a {self.name}",
            others=f"{files.journal} belongs to another {self.name}; choose another --output, or --restart "
            "to discard its games",
            beside=self.outputs(),
            restart=restart,
            overwrite=overwrite,
            log=log,
        )
        outcomes = self._archive.games
        last = max((outcome.number for outcome in outcomes), default=-1)
        if last >= len(self.config.schedule):
            raise MatchError(
                f"{files.journal} holds game {last + 1}, and the match is to have "
                f"{len(self.config.schedule)}: raise the number of games"
            )
        for outcome in outcomes:
            try:
                self.add(outcome)
            except ValueError as error:
                raise MatchError(f"{files.journal}: {error}") from None
        self.resumed = len(outcomes)
        return [outcome.number for outcome in outcomes]

    def write(self, game: GameRecord) -> GameRecord:
        assert self._archive is not None
        self._archive.add(self.pgn(game), self.entry(game))
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

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()

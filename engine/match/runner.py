# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of a match: concurrent games, each recorded and counted at its end, until all are played, the SPRT
decides, or the run is interrupted. Recorded games are not played again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from engine.games import run
from engine.games.record import GameOutcome, GameRecord
from engine.match.archive import MatchArchive
from engine.match.config import MatchConfig
from engine.match.faults import Faults, MatchError
from engine.match.job import MatchJob
from engine.match.results.standings import Standings
from engine.match.summary import summary
from engine.workers.executor import MakeExecutor
from engine.workers.local import local_executor

Ending = Literal["finished", "sprt", "interrupted"]


@dataclass(slots=True, kw_only=True)
class MatchState(run.RunState):
    """The state of a match, for displays. outcomes: in counted order."""

    config: MatchConfig
    standings: Standings
    outcomes: list[GameOutcome]


View = run.View[MatchState, GameRecord]


class MatchRunner:
    """One run of one match."""

    def __init__(
        self,
        config: MatchConfig,
        view: View,
        *,
        restart: bool = False,
        overwrite: bool = False,
        make_executor: MakeExecutor[GameRecord] | None = None,
    ) -> None:
        """restart: discard existing games. overwrite: replace files of other programs. make_executor: creates
        the executor (default: on this machine)."""
        self._config = config
        self._view = view
        self._restart, self._overwrite = restart, overwrite
        self._make_executor = make_executor or partial(local_executor, workers=config.workers)
        self.state = MatchState(config=config, standings=Standings(config.schedule, config.sprt), outcomes=[])

    async def run(self) -> Ending:
        """Play until the match is over, and write the summary.

        Raises OpeningError, TablebaseError, JournalError, PlayerError, ExecutorError and MatchError. The
        games so far are kept.
        """
        config, standings = self._config, self.state.standings
        job = await MatchJob.read(config, self._view.note)
        archive = await asyncio.to_thread(
            MatchArchive, config, restart=self._restart, overwrite=self._overwrite, log=self._view.note
        )
        try:
            ledger = _Ledger(self.state, archive)
            if not standings.over:
                missing = (number for number in range(len(config.schedule)) if number not in standings)
                await run.GameRun(self.state, ledger, self._view).play(
                    self._make_executor,
                    job,
                    missing,
                    concurrency=config.concurrency,
                    most=len(config.schedule),
                )
        finally:
            archive.close()
        if standings.decision != "continue":
            return "sprt"
        return "finished" if standings.finished else "interrupted"


class _Ledger:
    """Write the games of a match to its archive, and count them in its state."""

    def __init__(self, state: MatchState, archive: MatchArchive) -> None:
        """Count the games in the archive. Raises MatchError if they do not fit the match."""
        self._state = state
        self._archive = archive
        self._faults = Faults([player.name for player in state.config.players])
        journal = state.config.files.journal
        scheduled, last = (
            len(state.config.schedule),
            max((game.number for game in archive.outcomes), default=-1),
        )
        if last >= scheduled:
            raise MatchError(
                f"{journal} holds game {last + 1}, and the match is to have {scheduled}: raise the number "
                "of games"
            )
        for outcome in archive.outcomes:
            try:
                self._add(outcome)
            except ValueError as error:
                raise MatchError(f"{journal}: {error}") from None
        state.resumed = len(archive.outcomes)

    @property
    def summary_file(self) -> Path:
        return self._state.config.files.summary

    def write(self, game: GameRecord) -> GameRecord:
        self._archive.add(game)
        return game

    def count(self, entry: GameRecord) -> None:
        self._add(entry.outcome)
        self._faults.count(entry)

    def over(self) -> bool:
        """Return True if no more games are needed. Raises MatchError if a player fails repeatedly."""
        self._faults.check()
        return self._state.standings.over

    def summary(self) -> Mapping[str, Any] | None:
        state = self._state
        if not state.outcomes:
            return None
        return summary(state.config, state.standings, state.throughput)

    def _add(self, outcome: GameOutcome) -> None:
        self._state.standings.add(outcome)
        self._state.outcomes.append(outcome)

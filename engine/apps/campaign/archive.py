# SPDX-License-Identifier: GPL-3.0-or-later
"""Campaigns whose games are kept in a PGN for people, and in the journal that defines which games count.

A game is written to the PGN first and then to the journal, with the PGN's new size. After a crash the PGN is
truncated to the last size in the journal. So both have the same games, each once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from engine.apps.campaign.campaign import Campaign, Entry, Game
from engine.apps.games.journal import Journal, JournalError, campaign_journal
from engine.apps.games.pgn import PgnFile
from engine.workers.executor import Log
from protocol.common.outputs import OutputError, guard_output, guard_run


class Numbered(Protocol):
    """A game in a journal."""

    @property
    def number(self) -> int: ...


Kept = TypeVar("Kept", bound=Numbered)


@dataclass(frozen=True, slots=True, kw_only=True)
class GameFiles:
    """The files of a campaign. companions: those next to the journal and the PGN. header, kind, others: see
    `campaign_journal`."""

    journal: Path
    pgn: Path
    companions: tuple[Path, ...]
    header: Mapping[str, Any]
    kind: str
    others: str


class GameCampaign(Campaign[Game, Entry], Generic[Game, Entry, Kept]):
    """A campaign with a journal and a PGN."""

    _journal: Journal | None = None
    _pgn: PgnFile | None = None

    @abstractmethod
    def files(self) -> GameFiles:
        """Return the files, and what an existing journal must agree with."""

    @abstractmethod
    def read(self, entry: Mapping[str, Any]) -> Kept:
        """Return a game of the journal. Raises KeyError, TypeError and ValueError."""

    @abstractmethod
    def resume(self, games: Sequence[Kept]) -> None:
        """Count the games of the journal."""

    def open(
        self, *, restart: bool = False, overwrite: bool = False, log: Log = lambda text: None
    ) -> Collection[int]:
        """Also raises OutputError if the PGN file is not of a campaign, and the errors of `resume`."""
        files = self.files()
        try:
            guard_run(files.journal, (files.pgn, *files.companions), overwrite=overwrite)
        except OutputError as error:
            raise JournalError(f"without a journal of games: {error}") from None
        if restart:
            guard_output(files.pgn, overwrite=overwrite, own=_is_of_a_campaign)
        self._journal = campaign_journal(
            files.journal, files.header, kind=files.kind, others=files.others, restart=restart
        )
        try:
            games = self._journal.read(self.read)
            if not games:
                guard_output(files.pgn, overwrite=overwrite, own=_is_of_a_campaign)
            self._pgn = PgnFile(files.pgn, self._journal.last("pgn_end"), log)
            self.resume(games)
        except BaseException:
            self.close()
            raise
        self.resumed = len(games)
        return [game.number for game in games]

    def keep(self, pgn: str, entry: Mapping[str, Any]) -> None:
        """Write a game to disk, and sync it. Raises JournalError."""
        assert self._journal is not None and self._pgn is not None
        self._journal.append({**entry, "pgn_end": self._pgn.append(pgn)})

    def close(self) -> None:
        for file in (self._journal, self._pgn):
            if file is not None:
                file.close()


def _is_of_a_campaign(games: bytes) -> bool:
    """Return True for the content of a PGN file that a campaign wrote."""
    return b'[GameNumber "' in games.partition(b"\n\n")[0]

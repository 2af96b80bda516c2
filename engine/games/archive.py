# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage of a run's games: the PGN for people, and the journal that defines which games count.

A game is written to the PGN first and then to the journal, with the PGN's new size. After a crash the PGN is
truncated to the last size in the journal. So both have the same games, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from engine.games.identity import differences
from engine.games.journal import Journal, JournalError
from engine.games.pgn import PgnFile
from protocol.host.outputs import OutputError, guard_output, guard_run
from protocol.host.version import __version__

T = TypeVar("T")

FORMAT = 1
"""Version of the journal's lines."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages about a journal whose games cannot be continued.

    another_kind: it has another kind; follows the journal's path. other_games: its games have other settings;
    the differences follow. damaged: the remedy for a damaged game.
    """

    another_kind: str
    other_games: str
    damaged: str


class GameArchive(Generic[T]):
    """A journal and a PGN file, open for more games. One thread at a time may use it.

    games: those in the journal when it was opened.
    """

    def __init__(
        self,
        journal: Path,
        pgn: Path,
        header: Mapping[str, Any],
        read: Callable[[dict[str, Any]], T],
        messages: Messages,
        *,
        beside: Sequence[Path] = (),
        restart: bool = False,
        overwrite: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open or create the files.

        header: of a new journal, with its kind as `journal` and the games' dependencies as `identity`;
        journals with another identity are refused. read: converts an entry to a game; raises KeyError,
        TypeError or ValueError. beside: further files that the run writes. restart: discard existing games.
        overwrite: replace files of other programs.
        Raises JournalError if the journal is damaged, in use, or of other games, or if the other files exist
        without it, and OutputError if the PGN file is not of a run.
        """
        self._messages = messages
        try:
            guard_run(journal, (pgn, *beside), overwrite=overwrite)
        except OutputError as error:
            raise JournalError(f"without a journal of games: {error}") from None
        if restart:
            guard_output(pgn, overwrite=overwrite, own=_is_of_a_run)
        # The long identity comes last.
        header = {"journal": header["journal"], "format": FORMAT, "version": __version__, **header}
        self._journal = Journal(journal, header, restart=restart)
        if not self._journal.entries and self._journal.header.get("journal") == header["journal"]:
            # No game was played: the user may have corrected the settings since.
            self._journal.close()
            self._journal = Journal(journal, header, restart=True)
        try:
            self._check(header)
            self.games = self._read(read)
            if not self.games:
                guard_output(pgn, overwrite=overwrite, own=_is_of_a_run)
            self._pgn = PgnFile(pgn, self._journal.last("pgn_end"), log)
        except BaseException:
            self._journal.close()
            raise

    def add(self, pgn: str, entry: Mapping[str, Any]) -> None:
        """Write a game to disk, and sync it. Raises JournalError."""
        self._journal.append({**entry, "pgn_end": self._pgn.append(pgn)})

    def close(self) -> None:
        """Close both files. Idempotent."""
        self._journal.close()
        self._pgn.close()

    def _check(self, wanted: Mapping[str, Any]) -> None:
        journal, header = self._journal, self._journal.header
        if header.get("journal") != wanted["journal"] or header.get("format") != FORMAT:
            raise JournalError(f"{journal.path} {self._messages.another_kind}")
        changed = differences(header.get("identity", {}), wanted["identity"])
        if changed:
            lines = "\n  ".join(changed)
            raise JournalError(f"{self._messages.other_games}. What differs:\n  {lines}")

    def _read(self, read: Callable[[dict[str, Any]], T]) -> list[T]:
        try:
            return [read(entry) for entry in self._journal.entries]
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"{self._journal.path}: a game is damaged ({error}): {self._messages.damaged}"
            ) from None


def _is_of_a_run(games: bytes) -> bool:
    """Return True for the content of a PGN file that a run wrote."""
    return b'[GameNumber "' in games.partition(b"\n\n")[0]

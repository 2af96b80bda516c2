# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage of a run's games: the PGN for people, and the journal that defines which games count.

A game is written to the PGN first and then to the journal, with the PGN's new size. After a crash the PGN is
truncated to the last size in the journal. So both have the same games, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from engine.games.journal import JournalError, campaign_journal
from engine.games.pgn import PgnFile
from protocol.host.outputs import OutputError, guard_output, guard_run

T = TypeVar("T")


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
        *,
        kind: str,
        others: str,
        beside: Sequence[Path] = (),
        restart: bool = False,
        overwrite: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open or create the files.

        header, kind, others, restart: see `campaign_journal`. read: see `Journal.read`. beside:
        further files that the run writes. overwrite: replace files of other programs. Raises JournalError if
        the journal is damaged, in use, or of other games, or if the other files exist without it, and
        OutputError if the PGN file is not of a run.
        """
        try:
            guard_run(journal, (pgn, *beside), overwrite=overwrite)
        except OutputError as error:
            raise JournalError(f"without a journal of games: {error}") from None
        if restart:
            guard_output(pgn, overwrite=overwrite, own=_is_of_a_run)
        self._journal = campaign_journal(journal, header, kind=kind, others=others, restart=restart)
        try:
            self.games = self._journal.read(read)
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


def _is_of_a_run(games: bytes) -> bool:
    """Return True for the content of a PGN file that a run wrote."""
    return b'[GameNumber "' in games.partition(b"\n\n")[0]

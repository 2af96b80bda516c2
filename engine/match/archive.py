"""Where a match's games are kept: the PGN for people, the journal that says which games count.

A game goes to the PGN first and then to the journal, which notes where the PGN then ends. After a crash the
PGN is cut back to the last end in the journal: both hold the same games, each once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from engine import __version__
from engine.games.identity import differences
from engine.games.journal import Journal, JournalError
from engine.games.pgn import pgn_text
from engine.games.pgn_file import PgnFile
from engine.games.record import GameOutcome, GameRecord, Reason, as_result
from engine.match.config import MatchConfig

FORMAT = 1
"""Version of the journal's lines."""


class MatchArchive:
    """The files of a match, open for more games. `outcomes` are the games that were there already.

    Belongs to one thread at a time.
    """

    def __init__(
        self,
        config: MatchConfig,
        *,
        restart: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open or begin the files. Raises JournalError if they belong to another match, or are in use."""
        self._config = config
        files = config.files
        if not restart and not files.journal.exists() and files.pgn.exists() and files.pgn.stat().st_size:
            raise JournalError(
                f"{files.pgn} is there already, without a journal: choose another --output, "
                "or --restart to overwrite it"
            )
        header = {
            "journal": "wavefront match",
            "format": FORMAT,
            "version": __version__,
            "event": config.event,
            "identity": config.identity(),
        }
        self._journal = Journal(files.journal, header, restart=restart)
        if not self._journal.entries and self._journal.header.get("journal") == header["journal"]:
            # Nothing was played: the match that could not begin may have been put right since.
            self._journal.close()
            self._journal = Journal(files.journal, header, restart=True)
        try:
            self._check_header()
            self.outcomes = [self._outcome(entry) for entry in self._journal.entries]
            self._pgn = PgnFile(files.pgn, self._journal.last("pgn_end"), log)
        except BaseException:
            self._journal.close()
            raise

    def add(self, record: GameRecord) -> None:
        """Write a game down; when this returns it is on the disk. Raises JournalError."""
        text = pgn_text(
            record,
            self._config.players,
            event=self._config.event,
            games_per_pair=self._config.schedule.games_per_pair,
        )
        pgn_end = self._pgn.append(text)
        entry = asdict(record.outcome)
        entry["seconds"] = round(record.seconds, 3)
        entry |= {"opening": record.opening, "detail": record.detail, "pgn_end": pgn_end}
        self._journal.append(entry)

    def close(self) -> None:
        """Idempotent."""
        self._journal.close()
        self._pgn.close()

    def _check_header(self) -> None:
        journal, header = self._journal, self._journal.header
        if header.get("journal") != "wavefront match" or header.get("format") != FORMAT:
            raise JournalError(
                f"{journal.path} is not a journal of this program's matches: choose another --output"
            )
        changed = differences(header.get("identity", {}), self._config.identity())
        if changed:
            raise JournalError(
                f"{journal.path} belongs to another match; choose another --output, or --restart to "
                "discard its games. What differs:\n  " + "\n  ".join(changed)
            )

    def _outcome(self, entry: dict[str, Any]) -> GameOutcome:
        try:
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
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"{self._journal.path}: a game is damaged ({error}): move the file away"
            ) from None

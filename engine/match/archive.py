# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage of a match's games: a PGN for people, and the journal that defines which games count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from engine.games.archive import GameArchive, Messages
from engine.games.pgn import pgn_text
from engine.games.record import GameOutcome, GameRecord, Reason, as_result
from engine.match.config import MatchConfig


class MatchArchive:
    """The files of a match, open for more games. One thread at a time may use it.

    outcomes: games that were in the files when they were opened.
    """

    def __init__(
        self,
        config: MatchConfig,
        *,
        restart: bool = False,
        overwrite: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open or create the files. restart, overwrite: as for GameArchive.

        Raises JournalError if they belong to another match or are in use."""
        self._config = config
        files = config.files
        self._files = GameArchive(
            files.journal,
            files.pgn,
            {"journal": "wavefront match", "event": config.event, "identity": config.identity()},
            outcome_of,
            Messages(
                another_kind="is not a journal of this program's matches: choose another --output",
                other_games=f"{files.journal} belongs to another match; choose another --output, or "
                "--restart to discard its games",
                damaged="move the file away",
            ),
            beside=(files.summary,),
            restart=restart,
            overwrite=overwrite,
            log=log,
        )
        self.outcomes = self._files.games

    def add(self, record: GameRecord) -> None:
        """Write a game to disk, and sync it. Raises JournalError."""
        self._files.add(game_pgn(self._config, record), game_entry(record))

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._files.close()


def game_pgn(config: MatchConfig, record: GameRecord) -> str:
    """Return a game of a match as PGN."""
    return pgn_text(
        record,
        [player.name for player in config.players],
        [str(player.time) for player in config.players],
        event=config.event,
        games_per_pair=config.schedule.games_per_pair,
    )


def game_entry(record: GameRecord) -> dict[str, Any]:
    """Return a game's entry in the journal."""
    entry = asdict(record.outcome)
    entry["seconds"] = round(record.seconds, 3)
    return entry | {"opening": record.opening, "detail": record.detail}


def outcome_of(entry: Mapping[str, Any]) -> GameOutcome:
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

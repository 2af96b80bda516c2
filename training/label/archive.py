"""The folder of labelled games: shards, a journal that says which games are in them, and the games that wait
for the next one.

A game is written to the second journal when it is over. When enough wait, a shard is made of them, the first
journal says so, and the second begins anew. Whatever ends the process, no game is lost, and none is there
twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.games.identity import differences
from engine.games.journal import Journal, JournalError
from training.data.shard import SUFFIX, Shard, write_shard
from training.label.engine import Label
from training.label.game import Branch, LabelledGame
from training.label.settings import LabelSettings

JOURNAL, WAITING, SUMMARY = "label.jsonl", "waiting.jsonl", "label.json"
KIND = "wavefront training label"

SHARD_POSITIONS = 200_000
"""Labelled positions of a shard."""

RESULTS = ("black_won", "white_won", "draw")


@dataclass(slots=True)
class Totals:
    """Of all games in a folder."""

    games: int = 0
    positions: int = 0
    branches: int = 0
    plies: int = 0
    dropped: int = 0
    results: Counter[str] = field(default_factory=Counter)

    def add(self, game: LabelledGame) -> None:
        if game.dropped:
            self.dropped += 1
            return
        self.games += 1
        self.positions += game.positions
        self.branches += len(game.branches)
        self.plies += len(game.moves)
        self.results[RESULTS[game.result]] += 1

    def data(self) -> dict[str, Any]:
        """As JSON data, which `add_data` adds to others."""
        numbers = {
            name: getattr(self, name) for name in ("games", "positions", "branches", "plies", "dropped")
        }
        return {**numbers, "results": {name: self.results[name] for name in RESULTS}}

    def add_data(self, data: dict[str, Any]) -> None:
        for name in ("games", "positions", "branches", "plies", "dropped"):
            setattr(self, name, getattr(self, name) + int(data[name]))
        self.results.update({name: int(data["results"][name]) for name in RESULTS})


class LabelArchive:
    """An open folder. Belongs to one thread at a time. Attributes: totals, numbers (of all games, dropped
    ones included), shards (how many)."""

    def __init__(self, folder: Path, settings: LabelSettings) -> None:
        """Open or begin it. Raises JournalError if it is damaged, of other settings, or in use."""
        self.folder = folder
        header = {"journal": KIND, "format": 1, "identity": settings.identity()}
        self._journal = Journal(folder / JOURNAL, header)
        try:
            self._waiting = Journal(folder / WAITING, header)
        except BaseException:
            self._journal.close()
            raise
        try:
            if self._journal.header.get("journal") == KIND and not (
                self._journal.entries or self._waiting.entries
            ):
                # Nothing was labelled: the run that could not begin may have been put right since.
                self._journal = _begun_anew(self._journal, header)
                self._waiting = _begun_anew(self._waiting, header)
            self._check(header)
            self.totals = Totals()
            self.numbers: set[int] = set()
            self.shards = 0
            for entry in self._journal.entries:
                self._count(entry)
            games = self._read_waiting()
        except BaseException:
            self.close_files()
            raise
        self._games = [game for game in games if game.number not in self.numbers]
        for game in self._games:
            self.totals.add(game)
            self.numbers.add(game.number)

    def add(self, game: LabelledGame) -> None:
        """Write a game down; when this returns it is on the disk. Raises JournalError."""
        self._waiting.append(game.data())
        self._games.append(game)
        self.totals.add(game)
        self.numbers.add(game.number)
        if sum(waiting.positions for waiting in self._games) >= SHARD_POSITIONS:
            self.flush()

    def flush(self) -> None:
        """Make a shard of the games that wait. Raises JournalError."""
        if not self._games:
            return
        games = sorted((game for game in self._games if not game.dropped), key=lambda game: game.number)
        entry: dict[str, Any] = {"shard": None, "games": [game.number for game in games]}
        if games:
            path = self.folder / f"{self.shards:06d}{SUFFIX}"
            try:
                write_shard(path, shard_of(games))
            except OSError as error:
                raise JournalError(f"cannot write {path}: {error.strerror}") from None
            entry["shard"] = path.name
        entry["dropped"] = {str(game.number): game.dropped for game in self._games if game.dropped}
        totals = Totals()
        for game in self._games:
            totals.add(game)
        self._journal.append({**entry, "totals": totals.data()})
        self.shards += bool(games)
        self._games.clear()
        self._waiting = _begun_anew(self._waiting, self._waiting.header)

    def close(self) -> None:
        """Make a shard of what waits, and close the files. Raises JournalError."""
        try:
            self.flush()
        finally:
            self.close_files()

    def close_files(self) -> None:
        self._waiting.close()
        self._journal.close()

    def _check(self, header: dict[str, Any]) -> None:
        found = self._journal.header
        if found.get("journal") != KIND:
            raise JournalError(
                f"{self._journal.path} is no journal of labelled games: choose another --output"
            )
        changed = differences(found.get("identity", {}), header["identity"])
        if changed:
            lines = "\n  ".join(changed)
            raise JournalError(
                f"{self.folder} holds games labelled by other settings: choose another --output. "
                f"What differs:\n  {lines}"
            )

    def _read_waiting(self) -> list[LabelledGame]:
        """The games that wait; those that a shard has as well were written there just before the end."""
        try:
            return [LabelledGame.of_data(entry) for entry in self._waiting.entries]
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"{self._waiting.path} is damaged ({error!r}): move it away to go on without its games"
            ) from None

    def _count(self, entry: dict[str, Any]) -> None:
        try:
            self.numbers.update(int(number) for number in (*entry["games"], *entry["dropped"]))
            self.totals.add_data(entry["totals"])
            self.shards += entry["shard"] is not None
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"{self._journal.path} is damaged ({error!r}): choose another --output"
            ) from None


def _begun_anew(journal: Journal, header: dict[str, Any]) -> Journal:
    """The journal with nothing but a header."""
    journal.close()
    return Journal(journal.path, header, restart=True)


def shard_of(games: Sequence[LabelledGame]) -> Shard:
    """The games as a shard of labels."""
    labels = [label for game in games for label in game.labels]
    starts = np.cumsum([0] + [len(game.labels) for game in games])
    branches: list[tuple[int, Branch]] = [
        (int(start) + branch.ply, branch)
        for start, game in zip(starts, games, strict=False)
        for branch in game.branches
    ]
    wide = max(
        (len(label.lines) for label in (*labels, *(branch.label for _, branch in branches))), default=1
    )
    columns: dict[str, NDArray[Any]] = {
        "fens": np.frombuffer("\n".join(game.fen for game in games).encode(), np.uint8),
        "plies": np.array([len(game.moves) for game in games], np.uint16),
        "prefix": np.zeros(len(games), np.uint16),
        "results": np.array([game.result for game in games], np.uint8),
        "chess960": np.zeros(len(games), np.uint8),
        "moves": np.array([move for game in games for move in game.moves], np.uint16),
        **_label_columns("", labels, wide),
        "branch_at": np.array([at for at, _ in branches], np.uint32),
        "branch_move": np.array([branch.move for _, branch in branches], np.uint16),
        **_label_columns("branch_", [branch.label for _, branch in branches], wide),
    }
    return Shard("labels", columns, "labelled by a UCI engine")


def _label_columns(prefix: str, labels: Sequence[Label], wide: int) -> dict[str, NDArray[Any]]:
    """wide: lines of the position that has most."""
    moves = np.zeros((wide, len(labels)), np.uint16)
    scores = np.zeros((wide, len(labels)), np.int16)
    for place, label in enumerate(labels):
        for number, (move, cp) in enumerate(label.lines):
            moves[number, place], scores[number, place] = move, cp
    return {
        f"{prefix}best": np.array([label.best for label in labels], np.uint16),
        f"{prefix}best_cp": np.array([label.cp for label in labels], np.int16),
        f"{prefix}lines": moves,
        f"{prefix}lines_cp": scores,
    }

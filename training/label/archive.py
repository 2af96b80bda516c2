# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of labelled games: shards, a journal of the games in them, and games waiting for a shard.

A finished game is appended to the second journal. Once enough wait, that journal is renamed and a new one
started. A thread makes a shard of the games, records it in the first journal and deletes the renamed one. A
crash at any time loses no game and duplicates none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.games.identity import differences
from engine.games.journal import Journal, JournalError
from engine.selfplay.shard import SUFFIX, Shard, write_shard
from training.data.reading import UNDECIDED
from training.label.game import Branch, LabelledGame
from training.label.label import Label
from training.label.settings import LabelSettings

JOURNAL, WAITING, ASIDE, SUMMARY = "label.jsonl", "waiting.jsonl", "aside.jsonl", "label.json"
KIND = "wavefront training label"

SHARD_POSITIONS = 200_000
"""Labelled positions per shard."""

RESULTS = ("black_won", "white_won", "draw")


@dataclass(slots=True)
class Totals:
    """Totals of all games in a folder."""

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
        """Return the totals as JSON data, for `add_data`."""
        numbers = {
            name: getattr(self, name) for name in ("games", "positions", "branches", "plies", "dropped")
        }
        return {**numbers, "results": {name: self.results[name] for name in RESULTS}}

    def add_data(self, data: dict[str, Any]) -> None:
        for name in ("games", "positions", "branches", "plies", "dropped"):
            setattr(self, name, getattr(self, name) + int(data[name]))
        self.results.update({name: int(data["results"][name]) for name in RESULTS})


class LabelArchive:
    """An open folder, used by one thread. Attributes: totals, numbers (of all games, also dropped ones),
    shards (count).

    Games continue while a shard is written, which takes seconds.
    """

    def __init__(self, folder: Path, settings: LabelSettings) -> None:
        """Open or create the folder. Raises JournalError if it is damaged, in use or of other settings."""
        self.folder = folder
        header = {"journal": KIND, "format": 1, "identity": settings.identity()}
        self._maker = ThreadPoolExecutor(1, "shard-maker")
        self._making: Future[None] | None = None
        self._journal = Journal(folder / JOURNAL, header)
        try:
            self._waiting = Journal(folder / WAITING, header)
        except BaseException:
            self._journal.close()
            raise
        try:
            if self._journal.header.get("journal") == KIND and not (
                self._journal.entries or self._waiting.entries or (folder / ASIDE).exists()
            ):
                # Nothing was labelled, so the settings of a failed start may have been corrected.
                self._journal = _begun_anew(self._journal, header)
                self._waiting = _begun_anew(self._waiting, header)
            self._check(header)
            self.totals = Totals()
            self.numbers: set[int] = set()
            self.shards = self._positions = 0
            for entry in self._journal.entries:
                self._count(entry)
            self._games: list[LabelledGame] = []
            for game in self._read(self._waiting):
                self._take(game)
            self._take_back()
        except BaseException:
            self.close_files()
            raise

    def add(self, game: LabelledGame) -> None:
        """Append a game; it is on the disk on return. Raises JournalError."""
        self._waiting.append(game.data())
        self._take(game)
        if self._positions >= SHARD_POSITIONS:
            self._begin_shard()

    def _begin_shard(self) -> None:
        """Rename the journal of waiting games and start writing their shard. Waits for the previous one."""
        self._wait()
        aside = self.folder / ASIDE
        if aside.exists():
            raise JournalError(
                f"no shard could be made of the games in {aside}; the same command tries again"
            )
        self._waiting.close()
        try:
            self._waiting.path.replace(aside)
        except OSError as error:
            raise JournalError(f"cannot rename {self._waiting.path}: {error.strerror}") from None
        self._waiting = Journal(self._waiting.path, self._waiting.header)
        games, self._games, self._positions = self._games, [], 0
        self._making = self._maker.submit(self._make_shard, games)

    def _wait(self) -> None:
        """Wait for the shard that is being written. Raises JournalError."""
        making, self._making = self._making, None
        if making is not None:
            making.result()

    def _make_shard(self, played: Sequence[LabelledGame]) -> None:
        games = sorted((game for game in played if not game.dropped), key=lambda game: game.number)
        entry: dict[str, Any] = {"shard": None, "games": [game.number for game in games]}
        if games:
            path = self.folder / f"{self.shards:06d}{SUFFIX}"
            try:
                write_shard(path, shard_of(games))
            except OSError as error:
                raise JournalError(f"cannot write {path}: {error.strerror}") from None
            entry["shard"] = path.name
        entry["dropped"] = {str(game.number): game.dropped for game in played if game.dropped}
        totals = Totals()
        for game in played:
            totals.add(game)
        self._journal.append({**entry, "totals": totals.data()})
        self.shards += bool(games)
        (self.folder / ASIDE).unlink(missing_ok=True)

    def close(self) -> None:
        """Write a shard of the waiting games and close the files. Raises JournalError."""
        try:
            if self._games:
                self._begin_shard()
            self._wait()
        finally:
            self.close_files()

    def close_files(self) -> None:
        self._maker.shutdown()
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

    def _take(self, game: LabelledGame) -> None:
        """Add a waiting game, unless it is known already."""
        if game.number in self.numbers:
            return
        self._games.append(game)
        self._positions += game.positions
        self.totals.add(game)
        self.numbers.add(game.number)

    def _take_back(self) -> None:
        """Re-queue the games whose shard was unfinished when a process ended."""
        path = self.folder / ASIDE
        if not path.exists():
            return
        with Journal(path, self._waiting.header) as aside:
            for game in self._read(aside):
                if game.number not in self.numbers:
                    self._waiting.append(game.data())
                    self._take(game)
        path.unlink()

    def _read(self, journal: Journal) -> list[LabelledGame]:
        try:
            return [LabelledGame.of_data(entry) for entry in journal.entries]
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"{journal.path} is damaged ({error!r}): move it away to go on without its games"
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
    """Return the journal, reset to its header."""
    journal.close()
    return Journal(journal.path, header, restart=True)


def shard_of(games: Sequence[LabelledGame]) -> Shard:
    """Return the games as a shard of labels."""
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
        "prefix": np.array([game.prefix for game in games], np.uint16),
        "results": np.array([UNDECIDED if game.single else game.result for game in games], np.uint8),
        "chess960": np.zeros(len(games), np.uint8),
        "moves": np.array([move for game in games for move in game.moves], np.uint16),
        **_label_columns("", labels, wide),
        "branch_at": np.array([at for at, _ in branches], np.uint32),
        "branch_move": np.array([branch.move for _, branch in branches], np.uint16),
        **_label_columns("branch_", [branch.label for _, branch in branches], wide),
    }
    return Shard("labels", columns, "labelled by a UCI engine")


def _label_columns(prefix: str, labels: Sequence[Label], wide: int) -> dict[str, NDArray[Any]]:
    """wide: maximum number of lines of a position."""
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

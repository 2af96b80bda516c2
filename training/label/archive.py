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
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.apps.games import Journal, JournalError, campaign_journal
from engine.apps.shards import SUFFIX, Shard, write_shard
from protocol.common.files import replace_file
from protocol.common.printing import failing_as
from training.data.reading import UNDECIDED
from training.label.game import Alternative, LabelledGame
from training.label.lines import Label
from training.label.settings import LabelSettings

JOURNAL, WAITING, ASIDE, SUMMARY = "label.jsonl", "waiting.jsonl", "aside.jsonl", "label.json"
KIND = "wavefront training label"

WITHOUT_GAMES = "move the file away to go on without its games"
"""Remedy for a damaged journal of waiting games."""

SHARD_POSITIONS = 200_000
"""Labelled positions per shard."""

RESULTS = ("black_won", "white_won", "draw")


@dataclass(slots=True)
class LabelTotals:
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
        self._header = {"journal": KIND, "identity": settings.identity()}
        self._maker = ThreadPoolExecutor(1, "shard-maker")
        self._making: Future[None] | None = None
        self.totals = LabelTotals()
        self.numbers: set[int] = set()
        self.shards = self._positions = 0
        self._games: list[LabelledGame] = []
        with ExitStack() as opened:
            opened.callback(self._maker.shutdown)
            self._journal = opened.enter_context(self._open(JOURNAL))
            self._waiting = opened.enter_context(self._open(WAITING))
            self._journal.read(self._count)
            for game in self._waiting.read(LabelledGame.of_data, WITHOUT_GAMES):
                self._take(game)
            self._take_back()
            opened.pop_all()

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
        with failing_as(JournalError, f"cannot rename {self._waiting.path}"):
            replace_file(self._waiting.path, aside)
        self._waiting = self._open(WAITING)
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
            with failing_as(JournalError, f"cannot write {path}"):
                write_shard(path, shard_of(games))
            entry["shard"] = path.name
        entry["dropped"] = {str(game.number): game.dropped for game in played if game.dropped}
        totals = LabelTotals()
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

    def _open(self, name: str) -> Journal:
        """Return one of the folder's journals. Raises JournalError."""
        others = f"{self.folder} holds games labelled by other settings: choose another --output"
        return campaign_journal(self.folder / name, self._header, kind="labelled games", others=others)

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
        with self._open(ASIDE) as aside:
            for game in aside.read(LabelledGame.of_data, WITHOUT_GAMES):
                if game.number not in self.numbers:
                    self._waiting.append(game.data())
                    self._take(game)
        path.unlink()

    def _count(self, entry: dict[str, Any]) -> None:
        self.numbers.update(int(number) for number in (*entry["games"], *entry["dropped"]))
        self.totals.add_data(entry["totals"])
        self.shards += entry["shard"] is not None


def shard_of(games: Sequence[LabelledGame]) -> Shard:
    """Return the games as a shard of labels."""
    labels = [label for game in games for label in game.labels]
    starts = np.cumsum([0] + [len(game.labels) for game in games])
    branches: list[tuple[int, Alternative]] = [
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

"""The folder of a measurement of moves: the positions, what players played in them, and what a judge said.

`positions.jsonl` has a game in each line. The journals begin with what they are about; each further line is a
player, what it played in one game, or a judgement.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.strength.move_losses import Place, Question, Searched
from benchmarks.strength.replayed_games import GamesError, ReplayedGame, Selection, read_games
from engine.games.journal import Journal, JournalError
from protocol.host.files import write_atomically


class KeptError(Exception):
    """A folder that does not have what is needed. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The games of a measurement, in their order. identity: short, and another one for any other games."""

    games: tuple[ReplayedGame, ...]

    @property
    def identity(self) -> str:
        text = json.dumps([asdict(game) for game in self.games], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all. Raises OSError."""
        lines = "".join(json.dumps(asdict(game)) + "\n" for game in self.games)
        write_atomically(path, lines.encode())

    @classmethod
    def load(cls, path: Path) -> Positions:
        """Read the file. Raises GamesError."""
        try:
            return cls(tuple(_game(json.loads(line)) for line in path.read_text().splitlines()))
        except OSError as error:
            raise GamesError(f"cannot read {path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise GamesError(f"{path} is not a list of replayed games: choose another folder") from None


def _game(entry: Mapping[str, Any]) -> ReplayedGame:
    return ReplayedGame(int(entry["number"]), entry["fen"], tuple(entry["moves"]), tuple(entry["plies"]))


def positions_of(folder: Path, pgn: Path | None, selection: Selection) -> Positions:
    """The folder's positions, chosen from a PGN file now if it has none. Raises GamesError and KeptError."""
    path = folder / "positions.jsonl"
    chosen = Positions(tuple(selection.of(read_games(pgn)))) if pgn is not None else None
    if path.exists():
        kept = Positions.load(path)
        if chosen is not None and chosen != kept:
            raise KeptError(
                f"{folder} has positions of other games, or chosen otherwise: leave --pgn out to go on "
                "with those, or choose another folder"
            )
        return kept
    if chosen is None:
        raise KeptError(f"there are no positions in {folder} yet: choose them from games with --pgn FILE")
    if not chosen.games:
        raise KeptError(f"{pgn}: its games have no positions after the book")
    try:
        chosen.save(path)
    except OSError as error:
        raise KeptError(f"cannot write {path}: {error.strerror}") from None
    return chosen


def open_searches(folder: Path, positions: Positions) -> Journal:
    """What players played, for more of it. Raises JournalError."""
    header = {"journal": "wavefront move quality, searches", "positions": positions.identity}
    return _opened(folder / "searches.jsonl", header, "is of other positions: choose another folder")


def open_judgements(folder: Path, positions: Positions, judge: Mapping[str, Any]) -> Journal:
    """What a judge said, for more of it. Raises JournalError."""
    header = {
        "journal": "wavefront move quality, judgements",
        "positions": positions.identity,
        "judge": dict(judge),
    }
    hint = "is of another judge, or of other positions: move it away to judge anew"
    return _opened(folder / "judgements.jsonl", header, hint)


def _opened(path: Path, header: Mapping[str, Any], hint: str) -> Journal:
    journal = Journal(path, header)
    if journal.header != header:
        journal.close()
        raise JournalError(f"{path} {hint}")
    return journal


def kept_searches(folder: Path) -> tuple[Positions, dict[str, dict[Place, Searched]]]:
    """What each player played, in the order in which they came; without those that have finished no game.
    Raises GamesError, JournalError and KeptError."""
    if not (folder / "searches.jsonl").exists():
        raise KeptError(f"nothing was searched in {folder} yet")
    positions = Positions.load(folder / "positions.jsonl")
    searches: dict[str, dict[Place, Searched]] = {}
    with open_searches(folder, positions) as journal:
        for entry in journal.entries:
            if "searched" not in entry:
                continue
            known = searches.setdefault(entry["player"], {})
            for ply, move, nodes, milliseconds in entry["searched"]:
                known[entry["game"], ply] = Searched(move, nodes, milliseconds)
    return positions, searches


def kept_judgements(folder: Path, positions: Positions) -> dict[Question, int]:
    """Raises JournalError and KeptError."""
    path = folder / "judgements.jsonl"
    if not path.exists():
        raise KeptError(f"nothing was judged in {folder} yet")
    with Journal(path, {"positions": positions.identity}) as journal:
        if journal.header.get("positions") != positions.identity:
            raise KeptError(f"{path} is of other positions: move it away to judge anew")
        return judgements_in(journal)


def judgements_in(journal: Journal) -> dict[Question, int]:
    return {(entry["game"], entry["ply"], entry["move"]): entry["cp"] for entry in journal.entries}

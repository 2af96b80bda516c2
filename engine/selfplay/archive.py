"""Where self-play's games are kept: a folder with training data, PGN, and a journal that says what counts.

OUTPUT/training/game_000000.gz   one file per game, in lc0's format
OUTPUT/games.pgn                 the same games for people
OUTPUT/journal.jsonl             one line per game: from when its line is there, a game counts
OUTPUT/summary.json              totals

A game goes to the training file, then to the PGN, then to the journal. After a crash the PGN is cut back to
where the journal says it ends, and a training file without a line in the journal is written over by the same
game's next attempt: no game is there twice, and no file is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import __version__
from engine.games.identity import differences
from engine.games.journal import Journal, JournalError
from engine.games.pgn import pgn_text
from engine.games.pgn_file import PgnFile
from engine.games.record import Reason, Result, as_result
from engine.match.config import PlayerConfig
from engine.match.timecontrol import TimeControl
from engine.selfplay.chunk import UNFINISHED, write_chunk
from engine.selfplay.config import SelfPlayConfig
from engine.selfplay.game import PlayedGame, Side

JOURNAL_KIND = "wavefront selfplay"
FORMAT = 1
"""Version of the journal's lines."""


@dataclass(frozen=True, slots=True)
class GameEntry:
    """What the journal keeps of a game. positions: training records. plies: those of the opening included."""

    number: int
    result: Result
    reason: Reason
    plies: int
    positions: int
    seconds: float
    playthrough: bool
    would_resign: Side | None

    @classmethod
    def of(cls, game: PlayedGame) -> GameEntry:
        record = game.record
        return cls(
            number=record.number,
            result=record.result,
            reason=record.reason,
            plies=len(record.opening_moves) + len(record.moves),
            positions=len(game.training),
            seconds=round(record.seconds, 3),
            playthrough=game.playthrough,
            would_resign=game.would_resign,
        )

    @classmethod
    def read(cls, data: dict[str, Any]) -> GameEntry:
        """Raises KeyError and ValueError."""
        return cls(
            number=int(data["number"]),
            result=as_result(data["result"]),
            reason=Reason(data["reason"]),
            plies=int(data["plies"]),
            positions=int(data["positions"]),
            seconds=float(data["seconds"]),
            playthrough=bool(data["playthrough"]),
            would_resign=data["would_resign"],
        )


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths of a run of self-play."""

    root: Path

    @property
    def training(self) -> Path:
        return self.root / "training"

    @property
    def pgn(self) -> Path:
        return self.root / "games.pgn"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    def chunk(self, number: int) -> Path:
        """The training file of a game."""
        return self.training / f"game_{number:06d}.gz"


class Archive:
    """The folder of a run, open for more games. `entries` are the games that were there already.

    Belongs to one thread at a time.
    """

    def __init__(
        self,
        config: SelfPlayConfig,
        *,
        restart: bool = False,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open or begin the folder; restart forgets what is there. Raises JournalError if it belongs to other
        games, or is in use."""
        self.folder = Folder(Path(config.output).expanduser())
        self._player = PlayerConfig(_name(config), TimeControl(nodes=config.nodes), config.options)
        if not restart and not self.folder.journal.exists() and any(self.folder.training.glob("*.gz")):
            raise JournalError(
                f"{self.folder.training} holds training data, but no journal says of which games: choose "
                "another --output, or --restart to delete it"
            )
        identity = config.identity()
        header = {"journal": JOURNAL_KIND, "format": FORMAT, "version": __version__, "identity": identity}
        self._journal = Journal(self.folder.journal, header, restart=restart)
        try:
            self._check_header(identity)
            self.entries = [self._entry(data) for data in self._journal.entries]
            self._clear(everything=restart)
            self._pgn = PgnFile(self.folder.pgn, self._journal.last("pgn_end"), log)
        except BaseException:
            self._journal.close()
            raise

    def add(self, game: PlayedGame) -> GameEntry:
        """Write a game down; when this returns it is on the disk. Raises JournalError."""
        record = game.record
        text = pgn_text(record, [self._player], event="Wavefront self-play", games_per_pair=2)
        try:
            write_chunk(self.folder.chunk(record.number), game.training)
        except OSError as error:
            raise JournalError(f"cannot write in {self.folder.training}: {error.strerror}") from None
        pgn_end = self._pgn.append(text)
        entry = GameEntry.of(game)
        self._journal.append(
            {name: getattr(entry, name) for name in GameEntry.__slots__} | {"pgn_end": pgn_end}
        )
        return entry

    def close(self) -> None:
        """Idempotent."""
        self._journal.close()
        self._pgn.close()

    def _check_header(self, identity: dict[str, Any]) -> None:
        journal, header = self._journal, self._journal.header
        if header.get("journal") != JOURNAL_KIND or header.get("format") != FORMAT:
            raise JournalError(f"{journal.path} is not a journal of self-play: choose another --output")
        changed = differences(header.get("identity", {}), identity)
        if changed:
            raise JournalError(
                f"{self.folder.root} holds games that were played otherwise; choose another --output, or "
                "--restart to discard them. What differs:\n  " + "\n  ".join(changed)
            )

    def _entry(self, data: dict[str, Any]) -> GameEntry:
        try:
            return GameEntry.read(data)
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(
                f"{self._journal.path}: a game is damaged ({error}): move the folder away"
            ) from None

    def _clear(self, *, everything: bool) -> None:
        """Make the folder of training data, or delete what a killed run left of a file, or all files."""
        folder = self.folder.training
        try:
            folder.mkdir(exist_ok=True)
            for left_over in folder.glob("*.gz" if everything else f"*{UNFINISHED}"):
                left_over.unlink()
        except OSError as error:
            raise JournalError(f"cannot write in {folder}: {error.strerror}") from None


def _name(config: SelfPlayConfig) -> str:
    name = Path(config.options.weights).name.removesuffix(".gz").removesuffix(".pb")
    return name or "wavefront"

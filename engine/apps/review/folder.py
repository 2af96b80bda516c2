# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a review: a journal of finished games, a page for each, the page of all, the annotated games.

The journal says what the values depend on, and which annotated games the review wrote. So a review continues
only with the same settings, and replaces only its own files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.apps.games.identity import differences
from engine.apps.games.journal import Journal, JournalError
from engine.apps.review.annotating import ANNOTATOR, annotated
from engine.apps.review.games import GameReview, SourceGame
from engine.apps.review.pages import GENERATOR, game_page, index_page
from protocol.common.closing import Closing
from protocol.common.files import write_atomically
from protocol.common.outputs import guard_output

KIND, VERSION = "wavefront review", 2
"""Key of the journal's header, and the version of its entries."""

GAMES = "games.pgn"
INDEX = "index.html"
JOURNAL = "review.jsonl"


class ReviewFolder(Closing):
    """An open folder. known: reviews of the journal, by key of their game. A context manager."""

    def __init__(
        self,
        path: Path,
        sources: Sequence[SourceGame],
        identity: Mapping[str, Any],
        *,
        restart: bool = False,
        overwrite: bool = False,
        player: str = "",
    ) -> None:
        """Open or create the folder.

        identity: what the values depend on. player: whose side is at the bottom of the boards. restart:
        discard an earlier review. overwrite: replace files of
        other programs. Raises JournalError if it holds a review with other settings or of other games, and
        OutputError if it holds other files with the names of a review's.
        """
        self.path = path
        self._player = player
        header = {KIND: VERSION, "identity": dict(identity)}
        self._sources = sources
        self._written: list[str] = []
        if not (path / JOURNAL).exists():
            self._guard(overwrite=overwrite)
        self._journal = Journal(path / JOURNAL, header)
        try:
            self._written = [entry[GAMES] for entry in self._journal.entries if GAMES in entry]
            if self._journal.header.get(KIND) not in range(1, VERSION + 1):
                raise JournalError(
                    f"{self._journal.path} is not the journal of a review: choose another --output"
                )
            if not restart:
                self._check(identity)
            self._guard(overwrite=overwrite)
            if restart:
                self._journal.close()
                self._journal = Journal(path / JOURNAL, header, restart=True)
                for digest in self._written:
                    self._journal.append({GAMES: digest})
        except BaseException:
            self._journal.close()
            raise

    def close(self) -> None:
        self._journal.close()

    @property
    def reviewed(self) -> dict[str, dict[str, Any]]:
        return {entry["key"]: entry for entry in self._journal.entries if "review" in entry}

    def add(self, source: SourceGame, review: GameReview) -> dict[str, Any]:
        """Write a finished game to the journal and its page, and return its entry. Raises OSError and
        JournalError."""
        entry = {"key": source.key, "number": source.number, "place": source.place, "review": review.data()}
        self._journal.append(entry)
        self.write_page(review)
        return entry

    def write_page(self, review: GameReview) -> None:
        write_atomically(self.path / _page(review.number), game_page(review, self._player).encode("utf-8"))

    def write_index(self, reviews: Sequence[GameReview], skipped: Sequence[tuple[str, str]]) -> None:
        page = index_page(reviews, skipped, self._player)
        write_atomically(self.path / INDEX, page.encode("utf-8"))

    def finish(self, reviews: Sequence[GameReview], skipped: Sequence[tuple[str, str]]) -> None:
        """Write the annotated games and the page of all games, and delete pages of an earlier review."""
        by_number = {source.number: source for source in self._sources}
        pgn = "".join(annotated(by_number[review.number], review) for review in reviews).encode("utf-8")
        self._journal.append({GAMES: hashlib.sha256(pgn).hexdigest()})
        write_atomically(self.path / GAMES, pgn)
        self.write_index(reviews, skipped)
        pages = {_page(review.number) for review in reviews}
        for page in self.path.glob("game-*.html"):
            if page.name not in pages and _is_page(page.read_bytes()):
                page.unlink()

    def _check(self, identity: Mapping[str, Any]) -> None:
        """Raise JournalError if the journal has other settings, or games that are not in the sources."""
        changed = differences(self._journal.header.get("identity", {}), identity)
        remedy = "choose another --output, or --restart to discard it"
        if changed:
            raise JournalError(
                f"{self.path} holds a review with other settings ({'; '.join(changed)}): {remedy}"
            )
        keys = {source.key for source in self._sources}
        others = {entry["number"]: entry["place"] for key, entry in self.reviewed.items() if key not in keys}
        if others:
            raise JournalError(
                f"{self.path} holds a review of {len(others)} other games ({others[min(others)]}): "
                f"review their file too, {remedy}"
            )

    def _guard(self, *, overwrite: bool) -> None:
        guard_output(self.path / GAMES, overwrite=overwrite, own=self._wrote)
        for page in [self.path / INDEX, *self.path.glob("game-*.html")]:
            guard_output(page, overwrite=overwrite, own=_is_page)

    def _wrote(self, games: bytes) -> bool:
        """Return True for annotated games of this review that nobody has edited."""
        if not self._written:  # The review was killed before the journal's last line was on disk.
            return f'{ANNOTATOR}"]'.encode() in games.partition(b"\n\n")[0]
        return hashlib.sha256(games).hexdigest() in self._written


def check_sources(folder: Path, sources: Sequence[Path]) -> None:
    """Raise OutputError if a review in `folder` would write to a file that it reads."""
    written = [folder / GAMES, folder / INDEX, folder / JOURNAL, *folder.glob("game-*.html")]
    for path in written:
        guard_output(path, sources, overwrite=True)


def _page(number: int) -> str:
    return f"game-{number}.html"


def _is_page(content: bytes) -> bool:
    return GENERATOR.encode() in content[:1000]

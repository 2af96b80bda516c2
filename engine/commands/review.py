# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront review GAMES.pgn`: annotated PGN, report pages and JSON for any number of games."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from engine.options.flags import RUN_FLAGS, engine_flags, options_of_arguments
from protocol.common.commands import Declared
from protocol.common.folders import expanded
from protocol.common.outputs import OVERWRITE
from protocol.common.printing import reason as reason_of
from protocol.common.printing import say
from protocol.common.processes import INTERRUPTED
from protocol.common.settings.spec import shown

if TYPE_CHECKING:
    from engine.apps.review.folder import ReviewFolder
    from engine.apps.review.games import GameReview, SourceGame
    from engine.apps.review.searching import Reviewed, ReviewJob
    from engine.options import Options
    from engine.search.pool import SearchPool

_log = partial(say, "wavefront review")

HELP = "review games: annotated PGN, report pages, JSON"
NODES = {"quick": 100, "normal": 400, "deep": 2500}
"""Nodes of each position by --depth."""

MOST_NODES = 100_000_000

MOST_NAMES = 10
"""Maximum names in the message about a player without games."""

LINES = 20
"""Maximum lines that report the progress without a terminal."""

OPTIONS = (*RUN_FLAGS, "policy_head", "value_head", "history_fill", "hash", "syzygy_path")


ARGUMENTS: Declared = {
    "file FILE+:Path": "PGN files, also .gz; - is standard input",
    f"--depth {{{','.join(NODES)}}} = normal": "nodes for each position: quick 100, normal 400, deep 2,500; "
    "3 to 30 times as many where the game turns (default: %(default)s); without --weights, from 400 nodes on "
    "with wavefront-gpu",
    "--nodes N:int": "another number of nodes for each position",
    "--output FOLDER:Path = review": "folder (default: %(default)s)",
    "--player NAME = ''": "the side at the bottom of the boards",
    "--people FILE+:Path": "networks that imitate people, with a rating in their names, such as "
    "maia-1500.pb.gz (default: those of `wavefront get`)",
    "--encoding NAME = ''": "of files that are not UTF-8, such as cp1251 (default: guessed by the letters)",
    "--restart": "discard an earlier review in the folder",
    **OVERWRITE,
    "--json": "also print each review as a line of JSON",
    **engine_flags(OPTIONS),
}


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.games.text import STANDARD_INPUT
    from engine.apps.review.folder import ReviewFolder, check_sources
    from engine.apps.review.games import games_of
    from engine.apps.review.people import Imitators
    from engine.apps.review.searching import ReviewJob, with_network
    from engine.options import OptionError, Options
    from engine.search.pool import SearchPool
    from protocol.common.published import imitators, network_of_user

    nodes = NODES[arguments.depth] if arguments.nodes is None else arguments.nodes
    if not 1 <= nodes <= MOST_NODES:
        raise OptionError(f"--nodes: {nodes} is not in 1 to {MOST_NODES:,}")
    check_sources(arguments.output, [path for path in arguments.file if path != STANDARD_INPUT])
    options = with_network(options_of_arguments(arguments, Options(transposition_visits=0)), nodes)
    try:
        people = Imitators.of(
            [network_of_user(str(each)) or each for each in arguments.people] or imitators()
        )
    except ValueError as error:
        raise OptionError(f"--people: {error}") from None
    try:
        sources = list(games_of(arguments.file, _log, arguments.encoding))
    except OSError as error:
        _log(f"cannot read {error.filename}: {error.strerror}")
        return 1
    if all(_fault(source) for source in sources):
        for source in sources:
            _skip(source, _fault(source))
        _log(f"no games to review in {', '.join(map(str, arguments.file))}")
        return 1
    if arguments.player:
        _check_player(arguments.player, sources)
    pool = SearchPool(log=_log, priority="analysis")
    try:
        job = ReviewJob.of(sources, options, nodes, pool, people)
        identity = _identity(options, job, pool)
        with ReviewFolder(
            arguments.output,
            sources,
            identity,
            restart=arguments.restart,
            overwrite=arguments.overwrite,
            player=arguments.player,
        ) as folder:
            return _review(folder, sources, pool, job, as_json=arguments.json)
    except KeyboardInterrupt:
        _log("interrupted; the same command resumes the review")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        _log(f"cannot write {error.filename or arguments.output}: {error.strerror}")
        return 1
    finally:
        pool.close()


def _check_player(player: str, sources: Sequence[SourceGame]) -> None:
    """Raise OptionError, with the most frequent names, if a player has none of the games."""
    from engine.apps.games.pgn_reading import PgnGame
    from engine.options import OptionError

    games = Counter(name for source in sources for name in PgnGame(source.line, source.text).names)
    del games["?"]
    if player not in games:
        names = [shown(name) for name, _ in games.most_common(MOST_NAMES)]
        more = len(games) - len(names)
        raise OptionError(
            f"--player: no game of {shown(player)}; the files have {', '.join(names) or 'no names'}"
            + f" and {more:,} more" * (more > 0)
        )


def _identity(options: Options, job: ReviewJob, pool: SearchPool) -> dict[str, Any]:
    """Return what the values of a review depend on. Waits for the evaluator. Raises NoEvaluatorError."""
    from engine.apps.games.identity import file_identity, options_identity

    networks = (client.network for client in pool.connections(options))
    used = sorted({(network.identity, network.backend) for network in networks})
    return {
        "nodes": job.nodes,
        "people": [file_identity(name) for name in job.people.networks.values()],
        **options_identity(options, apart=("hash", "threads")),
        "tables": _tables(options.syzygy_path),
        "networks": [{"content": content, "backend": backend} for content, backend in used],
    }


def _tables(path: str) -> str:
    """Return a digest of the names of the tablebases in the folders of SyzygyPath."""
    folders = [expanded(folder) for folder in path.split(os.pathsep) if folder]
    names = sorted(file.name for folder in folders for file in folder.glob("*.rtb[wz]"))
    return hashlib.sha256(" ".join(names).encode()).hexdigest()[:16]


def _fault(source: SourceGame) -> str:
    """Return why a game is unreadable, or an empty text."""
    try:
        source.read()
    except Exception as error:  # The other games go on, whatever it is.
        return reason_of(error)
    return ""


def _review(
    folder: ReviewFolder,
    sources: list[SourceGame],
    pool: SearchPool,
    job: ReviewJob,
    *,
    as_json: bool,
) -> int:
    """Review the games that the folder lacks, write its files, and return the exit status. Raises
    NoEvaluatorError, ExecutorError, JournalError and OSError."""
    from engine.apps.review.searching import review_games
    from engine.workers.local import local_executor

    def show(entry: dict[str, Any]) -> None:
        if as_json:
            print(json.dumps(entry), flush=True)

    reviews, rest = _resumed(folder, sources, show)
    skipped: list[tuple[str, str]] = []
    searches = shown = 0
    resumed = {review.number for review in reviews}

    with _Progress(len(sources), len(reviews)) as progress:

        def take(game: Reviewed) -> None:
            nonlocal searches, shown
            source = game.source
            entry, reason = _kept(folder, game)
            if not entry or game.review is None:
                _skip(source, reason)
                skipped.append((str(source), reason))
                place = {"key": source.key, "number": source.number, "place": source.place}
                show(place | {"skipped": reason})
            else:
                reviews.append(game.review)
                if len(reviews) >= 2 * shown:  # The page of all games is long.
                    shown = len(reviews)
                    folder.write_index(reviews, skipped)
                show(entry)
            searches += game.searches
            progress.advance()

        began = perf_counter()
        if rest:
            job, make = replace(job, sources=tuple(rest)), partial(local_executor, pool=pool)
            asyncio.run(review_games(job, make, _log, take))
        seconds = perf_counter() - began
    reviews.sort(key=lambda review: review.number)
    for review in reviews:
        if review.number in resumed:  # Its number may have changed.
            folder.write_page(review)
    folder.finish(reviews, skipped)
    if searches:
        _log(f"{searches:,} searches in {seconds:.1f} s")
    files = f"{folder.path / 'index.html'}, {folder.path / 'games.pgn'}"
    text = f"{len(reviews)} games reviewed, {len(skipped)} skipped: {files}"
    print(text, file=sys.stderr if as_json else sys.stdout)
    return 0 if reviews else 1


def _kept(folder: ReviewFolder, game: Reviewed) -> tuple[dict[str, Any], str]:
    """Return the journal's entry of a game, or an empty one and the reason. Raises as `_review`."""
    from engine.apps.games.journal import JournalError

    for fault in game.faults:
        _log(f"{game.source}: {fault}")
    if game.review is None:
        return {}, game.reason
    try:
        return folder.add(game.source, game.review), ""
    except (OSError, JournalError):
        raise
    except Exception as error:  # The other games go on, whatever it is.
        return {}, reason_of(error)


def _resumed(
    folder: ReviewFolder, sources: list[SourceGame], show: Callable[[dict[str, Any]], None]
) -> tuple[list[GameReview], list[SourceGame]]:
    """Return the reviews that the folder has, and the games that it lacks. show: called with each review."""
    from engine.apps.review.games import GameReview

    known = folder.reviewed
    reviews = []
    for source in sources:
        if source.key in known:
            place = {"number": source.number, "place": source.place}
            entry = {**known[source.key], **place, "review": {**known[source.key]["review"], **place}}
            reviews.append(GameReview.of(entry["review"]))
            show(entry)
    if known:
        _log(f"resuming: {len(reviews)} of {len(sources)} games are reviewed already")
    return reviews, [source for source in sources if source.key not in known]


class _Progress:
    """Shows how many games are done: a bar in a terminal, otherwise at most LINES lines."""

    def __init__(self, total: int, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from engine.apps.campaign.display import shows_tables

        console = Console(stderr=True)
        columns = TextColumn("games"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        self._draws = shows_tables(console)
        self._bar = Progress(*columns, console=console, disable=not self._draws)
        self._task = self._bar.add_task("games", total=total, completed=done)
        self._total, self._done = total, done

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def advance(self) -> None:
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        lines = min(LINES, self._total)
        if not self._draws and self._done * lines // self._total > (self._done - 1) * lines // self._total:
            _log(f"{self._done} of {self._total} games done")


def _skip(source: SourceGame, reason: str) -> None:
    _log(f"{source} skipped: {reason}")

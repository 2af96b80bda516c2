# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront review GAMES.pgn`: annotated PGN, report pages and JSON for any number of games."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.analysis.scheduler import Scheduler
    from engine.games.journal import Journal
    from engine.review.games import Effort, GameReview, SourceGame

HELP = "review games: annotated PGN, report pages, JSON"
NODES = {"quick": 100, "normal": 400, "deep": 2500}
"""Nodes of each position by --depth."""

OPTIONS = (
    "weights",
    "backend",
    "evaluator",
    "threads",
    "policy_head",
    "value_head",
    "history_fill",
    "hash",
    "syzygy_path",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.option_flags import add_flags

    parser.add_argument("file", nargs="+", type=Path, help="PGN files")
    parser.add_argument(
        "--depth",
        choices=tuple(NODES),
        default="normal",
        help="nodes for each position: quick 100, normal 400, deep 2,500; 3 and 10 times as many around "
        "suspicious moves (default: %(default)s)",
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="another number of nodes for each position")
    parser.add_argument(
        "--output", type=Path, default=Path("review"), metavar="FOLDER", help="folder (default: %(default)s)"
    )
    parser.add_argument("--restart", action="store_true", help="discard an earlier review in the folder")
    parser.add_argument("--json", action="store_true", help="also print each review as a line of JSON")
    add_flags(parser, only=OPTIONS)


def run(arguments: argparse.Namespace) -> int:
    from engine.analysis.scheduler import Scheduler
    from engine.analysis.settings import AnalysisSettings
    from engine.evaluation.errors import NoEvaluatorError
    from engine.games.journal import Journal, JournalError
    from engine.option_flags import options_of_arguments
    from engine.options import Options
    from engine.review.games import Effort, GameReview, games_of

    nodes = arguments.nodes or NODES[arguments.depth]
    if nodes < 1:
        _log("--nodes is at least 1")
        return 2
    try:
        sources = list(games_of(arguments.file))
    except OSError as error:
        _log(f"cannot read {error.filename}: {error.strerror}")
        return 1
    if not sources:
        _log(f"no games in {', '.join(map(str, arguments.file))}")
        return 1
    options = options_of_arguments(arguments, Options(transposition_visits=0))
    failures: list[NoEvaluatorError] = []
    header = {"wavefront review": 1, "nodes": nodes, "weights": options.weights}
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
        with Journal(arguments.output / "review.jsonl", header, restart=arguments.restart) as journal:
            if journal.header != header:
                _log(
                    f"{journal.path} is a review with other settings; add --restart, or name another --output"
                )
                return 1
            effort, rate = Effort(), 0.0
            settings = AnalysisSettings(max_queued_bytes=1 << 30, max_message_bytes=1 << 24)
            scheduler = Scheduler(options, settings, log=_log)
            try:
                scheduler.start(failures.append)
                done = _reviewed(sources, journal, scheduler, nodes, effort, show=not arguments.json)
                reviews, skipped = [], []
                for entry in done:
                    if "skipped" in entry:
                        skipped.append((entry["place"], entry["skipped"]))
                    else:
                        reviews.append(GameReview.of(entry["review"]))
                    if arguments.json:
                        print(json.dumps(entry), flush=True)
                rate = scheduler.evaluator_rate()
            finally:
                scheduler.close()
    except (OSError, JournalError) as error:
        _log(str(error))
        return 1
    if failures:
        _log(str(failures[0]))
        return 1
    reviews.sort(key=lambda review: review.number)
    began = perf_counter()
    _write(arguments.output, sources, reviews, skipped)
    _log(_speed(effort, rate, perf_counter() - began))
    print(
        f"{len(reviews)} games reviewed, {len(skipped)} skipped: {arguments.output / 'index.html'}, "
        f"{arguments.output / 'games.pgn'}",
        file=sys.stderr if arguments.json else sys.stdout,
    )
    return 0 if reviews else 1


def _speed(effort: Effort, rate: float, writing_seconds: float) -> str:
    """Return the speed of a review. rate: positions per second of the evaluator alone, 0 if unknown."""
    parts = [
        f"{effort.positions:,} searches in {effort.seconds:.1f} s",
        f"{effort.evaluations_per_second:,.0f} evaluations/s",
    ]
    if rate:
        parts.append(f"{effort.evaluations_per_second / rate:.1%} of the evaluator's measured {rate:,.0f}/s")
    return f"{', '.join(parts)}; files written in {writing_seconds:.1f} s"


def _reviewed(
    sources: list[SourceGame],
    journal: Journal,
    scheduler: Scheduler,
    nodes: int,
    effort: Effort,
    *,
    show: bool,
) -> Iterator[dict[str, Any]]:
    """Yield an entry for each game: those of the journal, then new ones as they are ready."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from engine.review.games import review_games

    keys = {source.key: source for source in sources}
    known = {entry["key"]: entry for entry in journal.entries if entry.get("key") in keys}
    yield from known.values()
    rest = [source for source in sources if source.key not in known]
    finished: list[dict[str, Any]] = []

    def keep(source: SourceGame, entry: dict[str, Any]) -> None:
        entry = {"key": source.key, "number": source.number, "place": source.place, **entry}
        journal.append(entry)
        finished.append(entry)

    def skip(source: SourceGame, reason: str) -> None:
        _log(f"{source.place}: game {source.number} skipped: {reason}")
        keep(source, {"skipped": reason})

    columns = TextColumn("games"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=Console(stderr=True), disable=not (show and sys.stderr.isatty())
    ) as progress:
        bar = progress.add_task("games", total=len(sources), completed=len(known))
        by_number = {source.number: source for source in rest}
        for review in review_games(iter(rest), scheduler, nodes, skipped=skip, effort=effort):
            keep(by_number[review.number], {"review": review.data()})
            progress.update(bar, completed=len(known) + len(finished))
            yield from finished
            finished.clear()
        yield from finished


def _write(
    folder: Path, sources: list[SourceGame], reviews: list[GameReview], skipped: list[tuple[str, str]]
) -> None:
    """Write the annotated games, a page for each game and the page of all."""
    from engine.review.annotating import annotated
    from engine.review.pages import game_page, index_page
    from protocol.host.files import write_atomically

    by_number = {source.number: source for source in sources}
    links = [f"game-{review.number}.html" for review in reviews]
    pgn = "".join(annotated(by_number[review.number], review) for review in reviews)
    write_atomically(folder / "games.pgn", pgn.encode("utf-8"))
    for review, link in zip(reviews, links, strict=True):
        write_atomically(folder / link, game_page(review).encode("utf-8"))
    write_atomically(folder / "index.html", index_page(reviews, skipped, links).encode("utf-8"))


def _log(text: str) -> None:
    from protocol.host.printing import printable

    print(f"wavefront review: {printable(text)}", file=sys.stderr, flush=True)

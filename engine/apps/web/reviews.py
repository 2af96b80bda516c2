# SPDX-License-Identifier: GPL-3.0-or-later
"""Reviews of games as jobs on the analysis pool, one of a client at a time, kept as the page's games are."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import chess.pgn

from engine.apps.games.pgn_reading import PgnError, PgnGames
from engine.apps.review.annotating import annotated
from engine.apps.review.games import GameReview, SourceGame
from engine.apps.review.pages import game_page, grown, index_page
from engine.apps.review.searching import (
    Reviewed,
    ReviewExecutor,
    ReviewJob,
    ReviewProgress,
    review_games,
    with_network,
)
from engine.apps.web.limits import ClientLimits
from engine.apps.web.store import Store
from engine.apps.web.turns import Lane
from engine.options import Options
from engine.search.pool import SearchPool
from engine.workers.executor import GameExecutor, Log, WorkerContext
from protocol.common.http.middleware import TOO_MANY, HttpError
from protocol.common.printing import reason

MOST_OF_CLIENT = 8
"""Jobs of one client that wait or run."""

MOST_ENDED = 32
"""Jobs that ended early and are kept in memory, as well as in the store."""

MOST_RUNNING = 64
"""Clients whose reviews share the pool."""

FIRST_NODES = 3
"""Nodes of each position in the first pass, which shows marks within 2 s."""

SAVING_SHARE = 0.05
"""Largest share of the time that writing a running job takes."""

ACTIVE, ENDED = ("waiting", "running"), "the server ended"


@dataclass(eq=False, slots=True)
class StoredReview:
    """A review. state: waiting, running, done, failed or stopped. board: identity of the stored game that is
    reviewed, or empty. rows, lines: by number of a finished game, what lists show and its review as JSON.
    skipped: place and reason by number. growing: games that are not finished, by number. save_at: time of the
    next write.
    """

    identity: str
    owner: str
    title: str
    pgn: str
    nodes: int
    board: str = ""
    state: str = "waiting"
    reason: str = ""
    total: int = 0
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[int, tuple[str, str]] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    growing: dict[int, ReviewProgress] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    save_at: float = 0.0

    @classmethod
    def of(cls, head: dict[str, Any], content: str) -> StoredReview:
        """Return a kept job. One that ran when the server ended is stopped."""
        first, *lines = content.splitlines()
        job = cls(**json.loads(first))
        for name in ("rows", "skipped"):
            setattr(job, name, {int(number): each for number, each in getattr(job, name).items()})
        job.lines = dict(zip(job.rows, lines, strict=True))
        job.state, job.reason = (_ended(head)[name] for name in ("state", "reason"))
        return job

    def head(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("title", "state", "reason")}

    def content(self) -> str:
        """Return the job as lines of JSON: itself, and the review of each game."""
        names = ("identity", "owner", "title", "pgn", "nodes", "board", "total", "rows", "skipped")
        lines = [json.dumps({name: getattr(self, name) for name in names})]
        return "\n".join([*lines, *(self.lines[number] for number in self.rows)])

    def sources(self) -> list[SourceGame]:
        games = enumerate(PgnGames(self.pgn), 1)
        return [SourceGame(number, "pgn", game.line, game.text) for number, game in games]

    def data(self) -> dict[str, Any]:
        """Return the job's progress and its games, finished and growing ones."""
        growing = {number: _row(each) for number, each in self.growing.items()}
        return {
            "id": self.identity,
            "title": self.title,
            "state": self.state,
            "reason": self.reason,
            "done": len(self.rows) + len(self.skipped),
            "total": self.total,
            "games": [row for _, row in sorted({**growing, **self.rows}.items())],
            "skipped": [{"place": place, "reason": reason} for place, reason in self.skipped.values()],
        }

    def review(self, number: int) -> GameReview:
        """Return the review of a game, as far as it is. Takes up to a second. Raises HttpError."""
        if number in self.lines:
            return GameReview.of(json.loads(self.lines[number]))
        if number in self.skipped:
            raise HttpError(404, f"game {number} was skipped: {self.skipped[number][1]}")
        if not 1 <= number <= self.total:
            raise HttpError(404, f"game {number} is not in 1 to {self.total}")
        source = self.sources()[number - 1]
        try:
            return (self.growing.get(number) or ReviewProgress(source, source.read())).review()
        except PgnError as error:
            raise HttpError(404, f"game {number} cannot be read: {error}") from None

    def index(self) -> str:
        """Return the page of all games, which links to game-N.html."""
        return index_page([self.review(number) for number in sorted(self.lines)], list(self.skipped.values()))

    def page(self, number: int) -> str:
        """Return the page of a game. Raises HttpError."""
        board = f"/#review={self.identity}&number={number}&game={self.board or f'{self.identity}-{number}'}"
        more = {**self.grown(number), "board": board, "id": self.identity, "nodes": self.nodes}
        return game_page(self.review(number), index="./", **more)

    def grown(self, number: int) -> dict[str, Any]:
        """Return what changes on the page of a game. state: what its review does, empty at its end."""
        state, known = self.state, self.growing.get(number)  # First: the job may end meanwhile.
        searched = f"{len(known.found):,} of {known.asked:,} positions" if known else ""
        told = "" if number in self.lines else ", ".join(filter(None, (state, self.reason, searched)))
        return {**grown(self.review(number)), "live": bool(told) and state in ACTIVE, "state": told}

    def pgn_of(self, number: int | None = None) -> str:
        """Return the annotated games, or one of them. Raises HttpError."""
        sources = self.sources()
        numbers = sorted(self.lines) if number is None else [number]
        return "".join(annotated(sources[each - 1], self.review(each)) for each in numbers)


def _ended(head: dict[str, Any]) -> dict[str, Any]:
    """Return the head of a kept job after its server's end, which stops jobs."""
    return {**head, "state": "stopped", "reason": ENDED} if head["state"] in ACTIVE else head


def _row(progress: ReviewProgress, review: GameReview | None = None) -> dict[str, Any]:
    """Return what lists show of a game. searched, asked: positions, each as often as it was searched."""
    counts = {"number": progress.source.number, "searched": len(progress.found), "asked": progress.asked}
    headers = {name: progress.game.headers.get(name, "?") for name in ("White", "Black", "Result")}
    opening = review.opening[1] if review and review.opening else None
    more = {"accuracy": review.accuracy if review else (None, None), "opening": opening}
    return counts | {name.lower(): text for name, text in headers.items()} | more


class Reviews:
    """All jobs. Only the event loop may use it, except `get` and `listed`."""

    def __init__(
        self,
        pool: SearchPool,
        options: Options,
        log: Log,
        most_games: int,
        store: Store,
        limits: ClientLimits,
    ) -> None:
        self._pool, self._options, self._log, self._most_games = pool, options, log, most_games
        self._store, self._limits = store, limits
        self._jobs: dict[str, StoredReview] = {}  # The others are in the store alone.
        self._turns = Lane(MOST_RUNNING, 1)

    async def start(self, job: StoredReview, payer: str, sources: Sequence[SourceGame]) -> StoredReview:
        """Start a new job, or a stopped or failed one again, and return it. payer: the client for limits.
        Raises HttpError."""
        running = self._jobs.get(job.identity, job)
        if (running.state in ACTIVE and running.task) or running.state == "done":
            return running
        if not sources:
            raise HttpError(422, "pgn has no games")
        if len(sources) > self._most_games:
            raise HttpError(413, f"{len(sources):,} games are more than {self._most_games:,} at a time")
        active = [each for each in self._jobs.values() if each.state in ACTIVE and each.owner == job.owner]
        size = sum(len(each.pgn) for each in active) + len(job.pgn)
        if len(active) >= MOST_OF_CLIENT or size > self._store.most_bytes // 2:
            raise HttpError(429, f"{len(active)} reviews wait already", Retry_After="30")
        if not job.title:
            more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
            now = datetime.datetime.now().astimezone()
            job.title = f"{PgnGames(job.pgn)[0].players}{more}, {now:%Y-%m-%d %H:%M}"
        job.total, job.state, job.reason = len(sources), "waiting", ""
        self._jobs[job.identity] = job
        self._save(job)
        job.task = asyncio.get_running_loop().create_task(self._run(job, payer, sources))
        return job

    def get(self, identity: str) -> StoredReview:
        """Return a job by its id, which nobody can guess. Raises HttpError."""
        if (job := self._jobs.get(identity)) is not None:
            return job
        head, content = self._store.read(identity, None)
        if not head:
            raise HttpError(404, "there is no such review: it was deleted, or newer ones replaced it")
        return StoredReview.of(head, content)

    def listed(self, owner: str) -> list[dict[str, Any]]:
        """Return id, title and state of a client's jobs, the newest first."""
        rows = {head["identity"]: _ended(head) for head in self._store.listed(owner) if "title" in head}
        rows |= {job.identity: job.head() for job in list(self._jobs.values()) if job.owner == owner}
        return [{"id": name, "title": row["title"], "state": row["state"]} for name, row in rows.items()]

    async def stop(self, job: StoredReview) -> StoredReview:
        """Stop a job and return it. It can be started again."""
        if job.task is not None:
            job.task.cancel()
            await asyncio.wait([job.task])
        if job.state in ACTIVE:  # It had not begun.
            job.state = "stopped"
            self._save(job)
        return job

    async def delete(self, job: StoredReview) -> None:
        """End and delete a job."""
        self._jobs.pop(job.identity, None)
        await self.stop(job)
        self._store.delete(job.identity, job.owner)

    def end(self, reason: str, owners: Collection[str] | None = None) -> None:
        """Stop the jobs of some clients, or all (None)."""
        for job in self._jobs.values():
            if job.task is not None and job.state in ACTIVE and (owners is None or job.owner in owners):
                job.reason = reason
                job.task.cancel()

    async def _run(self, job: StoredReview, payer: str, sources: Sequence[SourceGame]) -> None:
        try:
            async with self._turns.turn(payer):
                while (wait_s := await self._reviewed(job, payer, sources)) is not None:
                    await asyncio.sleep(wait_s)
                job.state, job.reason = "done", ""
        except asyncio.CancelledError:
            job.state = "stopped"
            raise
        except HttpError as error:  # The client may not go on.
            job.state, job.reason = "stopped", str(error)
        except Exception as error:  # A job has an end, whatever it is.
            job.state, job.reason = "failed", reason(error)
            self._log(f"review {job.identity} failed: {job.reason}")
        finally:
            if self._save(job) and job.state == "done":
                del self._jobs[job.identity]
            over = [name for name, each in self._jobs.items() if each.state not in ACTIVE]
            for name in over[:-MOST_ENDED]:
                del self._jobs[name]

    async def _reviewed(self, job: StoredReview, payer: str, sources: Sequence[SourceGame]) -> float | None:
        """Review the games that are left. Return the seconds to wait if the client's are spent, else None."""
        options = Options(transposition_visits=0)
        same = ("weights", "backend", "evaluator", "hash", "syzygy_path", "policy_head", "value_head")
        options = with_network(
            options.changed(**{name: getattr(self._options, name) for name in same}), job.nodes
        )
        left = [each for each in sources if each.number not in {**job.rows, **job.skipped}]
        try:
            with self._limits.charged(payer) as charge:
                job.state, job.reason = "running", ""
                made = await asyncio.to_thread(ReviewJob.of, left, options, job.nodes, self._pool)
                self._limits.add(charge, made.positions)
                opened = partial(_opened, self._pool, job, payer)
                await review_games(made, opened, self._log, partial(self._take, job))
        except HttpError as error:
            if error.status != TOO_MANY:
                raise
            job.state, job.reason = "waiting", str(error)
            return float(error.headers["Retry-After"])
        return None

    def _take(self, job: StoredReview, game: Reviewed) -> None:
        """Add a finished game. Called in another thread, one at a time."""
        number, progress = game.source.number, job.growing.get(game.source.number)
        if game.review is None or progress is None:
            job.skipped[number] = str(game.source), game.reason
        else:
            job.lines[number] = json.dumps(game.review.data())
            job.rows[number] = _row(progress, game.review)
        job.growing.pop(number, None)
        if (start := perf_counter()) >= job.save_at:
            self._save(job)
            job.save_at = perf_counter() + (perf_counter() - start) / SAVING_SHARE

    def _save(self, job: StoredReview) -> bool:
        """Keep a job unless it was deleted. Return whether it is kept."""
        if self._jobs.get(job.identity) is not job:
            return False
        try:
            self._store.write(job.identity, job.owner, job.head(), job.content())
        except HttpError as error:
            self._log(f"review {job.identity} is kept in memory only: {error}")
            return False
        return True


class _Executor(ReviewExecutor):
    """Reviews games on a pool that others use, too, and shows how they grow."""

    first_nodes = FIRST_NODES
    growing: dict[int, ReviewProgress]

    def progress(self, source: SourceGame, game: chess.pgn.Game) -> ReviewProgress:
        return self.growing.setdefault(source.number, ReviewProgress(source, game))

    async def close(self) -> None:
        """Keep the pool."""


async def _opened(
    pool: SearchPool, job: StoredReview, owner: str, made: Any, _log: Log
) -> GameExecutor[Reviewed]:
    executor = _Executor(made, WorkerContext(), pool)
    executor.growing, executor.owner = job.growing, owner
    return executor

# SPDX-License-Identifier: GPL-3.0-or-later
"""Reviews of games as jobs: one after the other on the analysis pool, kept in memory."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from engine.games.pgn_reading import PgnGames
from engine.options import Options
from engine.pool.pool import SearchPool
from engine.review.annotating import annotated
from engine.review.games import GameReview, SourceGame
from engine.review.pages import game_page, index_page
from engine.review.searching import Reviewed, ReviewExecutor, ReviewJob, review_games
from engine.workers.executor import GameExecutor, Log, WorkerContext
from protocol.host.printing import reason
from protocol.http.middleware import HttpError

MOST_JOBS = 32
"""Jobs that are kept. A new one displaces the oldest that is over."""

MOST_OF_CLIENT = 8
"""Jobs of one client that are kept or wait."""


@dataclass(eq=False, slots=True)
class Job:
    """A review. state: waiting, running, done, failed or cancelled. skipped: places and reasons."""

    identity: str
    owner: str
    sources: Sequence[SourceGame]
    nodes: int
    state: str = "waiting"
    reason: str = ""
    reviews: list[GameReview] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def data(self) -> dict[str, Any]:
        """Return the job's progress and its finished games."""
        names = [self._row(review) for review in sorted(self.reviews, key=lambda each: each.number)]
        return {
            "id": self.identity,
            "state": self.state,
            "reason": self.reason,
            "done": len(self.reviews) + len(self.skipped),
            "total": len(self.sources),
            "games": names,
            "skipped": [{"place": place, "reason": reason} for place, reason in self.skipped],
        }

    def review(self, number: int) -> GameReview:
        """Return the review of a game. Raises HttpError."""
        found = next((review for review in self.reviews if review.number == number), None)
        if found is None:
            raise HttpError(404, f"game {number} is not among the reviewed games")
        return found

    def index(self) -> str:
        """Return the page of all games, which links to game-N.html."""
        reviews = sorted(self.reviews, key=lambda each: each.number)
        return index_page(reviews, self.skipped)

    def page(self, number: int) -> str:
        return game_page(self.review(number), index="./")

    def pgn(self, number: int | None = None) -> str:
        """Return the annotated games, or one of them. Raises HttpError."""
        by_number = {source.number: source for source in self.sources}
        reviews = (
            sorted(self.reviews, key=lambda each: each.number) if number is None else [self.review(number)]
        )
        return "".join(annotated(by_number[review.number], review) for review in reviews)

    def _row(self, review: GameReview) -> dict[str, Any]:
        return {
            "number": review.number,
            "white": review.headers.get("White", "?"),
            "black": review.headers.get("Black", "?"),
            "result": review.headers.get("Result", "*"),
            "accuracy": list(review.accuracy),
            "opening": review.opening[1] if review.opening else None,
        }


class Reviews:
    """All jobs. Only the event loop may use it."""

    def __init__(self, pool: SearchPool, options: Options, log: Log, most_games: int) -> None:
        self._pool, self._options, self._log, self._most_games = pool, options, log, most_games
        self._jobs: dict[str, Job] = {}
        self._turn = asyncio.Lock()

    async def start(self, owner: str, pgn: str, nodes: int) -> Job:
        """Start a job. Raises HttpError."""
        games = await asyncio.to_thread(PgnGames, pgn)
        if not games:
            raise HttpError(422, "pgn has no games")
        if len(games) > self._most_games:
            raise HttpError(413, f"{len(games):,} games are more than {self._most_games:,} at a time")
        self._make_room(owner)
        numbered = zip(itertools.count(1), games, strict=False)
        sources = [SourceGame(number, "pgn", game.line, game.text) for number, game in numbered]
        job = Job(secrets.token_urlsafe(12), owner, sources, nodes)
        self._jobs[job.identity] = job
        job.task = asyncio.get_running_loop().create_task(self._run(job))
        return job

    def get(self, identity: str) -> Job:
        """Return a job by its id, which nobody can guess. Raises HttpError."""
        if identity not in self._jobs:
            raise HttpError(404, "there is no such review: it was cancelled, or newer ones replaced it")
        return self._jobs[identity]

    def cancel(self, identity: str) -> None:
        """End and forget a job. Raises HttpError."""
        job = self.get(identity)
        if job.task is not None:
            job.task.cancel()
        del self._jobs[identity]

    def close(self) -> None:
        """End all jobs."""
        for job in self._jobs.values():
            if job.task is not None:
                job.task.cancel()

    def _make_room(self, owner: str) -> None:
        own = [job for job in self._jobs.values() if job.owner == owner]
        for jobs, most in ((own, MOST_OF_CLIENT), (list(self._jobs.values()), MOST_JOBS)):
            if len(jobs) >= most:
                over = next((job for job in jobs if job.state not in ("waiting", "running")), None)
                if over is None:
                    text = f"{len(jobs)} reviews wait already"
                    raise HttpError(429, text, Retry_After="30")
                self._jobs.pop(over.identity, None)

    async def _run(self, job: Job) -> None:
        try:
            async with self._turn:
                job.state = "running"
                options = Options(transposition_visits=0)
                same = ("weights", "backend", "evaluator", "hash", "syzygy_path", "policy_head", "value_head")
                options = options.changed(**{name: getattr(self._options, name) for name in same})
                made = await asyncio.to_thread(ReviewJob.of, job.sources, options, job.nodes, self._pool)
                await review_games(made, partial(_executor, self._pool), self._log, partial(_take, job))
                job.state = "done"
        except asyncio.CancelledError:
            job.state = "cancelled"
            raise
        except Exception as error:  # A job has an end, whatever it is.
            job.state, job.reason = "failed", reason(error)
            self._log(f"review {job.identity} failed: {job.reason}")


class _Executor(ReviewExecutor):
    """Reviews games on a pool that others use, too."""

    async def close(self) -> None:
        """Keep the pool."""


async def _executor(pool: SearchPool, job: Any, _log: Log) -> GameExecutor[Reviewed]:
    return _Executor(job, WorkerContext(), pool)


def _take(job: Job, game: Reviewed) -> None:
    """Add a finished game. Called in another thread, one at a time."""
    if game.review is None:
        job.skipped.append((str(game.source), game.reason))
    else:
        job.reviews.append(game.review)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluation of positions by the network alone, in batches, without a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine._core import Game
from engine.apps.analysis import answers
from engine.apps.analysis.errors import QueryError, fault
from engine.apps.analysis.fields import QueryFields
from engine.apps.analysis.messages import read_object
from engine.apps.analysis.query import read_game
from engine.evaluation.errors import NoEvaluatorError, PipelineError
from protocol.common.printing import reason
from protocol.common.settings.spec import shown

if TYPE_CHECKING:
    from engine.apps.analysis.clients import Task
    from engine.apps.analysis.searching import Post
    from engine.evaluation.link.link import EvaluatorLink
    from engine.options import Options
    from engine.search.loop.evaluation import Evaluated
    from engine.search.pool import SearchPool
    from protocol.batch import EvaluationBatch, PositionBatch

BATCHES_IN_FLIGHT = 2
"""Batches in flight below which a partial batch is sent. Full batches are always sent."""

LINE_FIELDS = ("id", "fen", "moves", "chess960")

DIGITS = 7
"""Decimal places. The network's numbers have a precision of 24 bits."""


def read_line(line: bytes, most_bytes: int) -> tuple[Game | None, dict[str, Any]]:
    """Return the game in a line of `wavefront evaluate`, and the answer's fields besides the output. The `id`
    may be any value, and is one of them."""
    named: dict[str, Any] = {}
    try:
        fields, _ = read_object(line, most_bytes)
        if "id" in fields:
            named = {"id": fields.pop("id")}
        if unknown := fields.keys() - LINE_FIELDS:
            raise QueryError(f"unknown key {shown(min(unknown))}; known are {', '.join(LINE_FIELDS)}")
        game, notes = read_game(QueryFields().changed(**fields), playable=False)
    except Exception as error:  # The other lines go on, whatever it is.
        return None, named | {"error": reason(error)}
    return game, named | ({"warning": "; ".join(notes)} if notes else {})


def batch_size(links: Sequence[EvaluatorLink], options: Options) -> int:
    """Return the largest batch that all connected evaluators accept; 1 if there is none."""
    clients = [link.client for link in links if link.client is not None]
    sizes = [min(options.minibatch_size or each.recommended_batch, each.max_batch) for each in clients]
    return min(sizes, default=1)


def outputs(games: Sequence[Game], batch: PositionBatch, found: EvaluationBatch) -> list[dict[str, Any]]:
    """Return the network's output for each game in the answers' format, for the side to move.

    Raises PipelineError for a value that is not finite.
    """
    counts = np.diff(batch.move_offsets)
    starts, some = batch.move_offsets[:-1][counts > 0], counts[counts > 0]
    logits, wdl, left = (each.astype(np.float64) for each in (found.logits, found.wdl, found.moves_left))
    policy = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), some))
    policy /= np.repeat(np.add.reduceat(policy, starts), some)
    numbers = wdl[:, 0] - wdl[:, 2], wdl, left, policy, logits
    if not all(np.isfinite(each).all() for each in numbers):
        raise PipelineError("the evaluator sent an unusable result: not a number")
    q, wdl_lists, moves_left, *of_moves = ((each.round(DIGITS) + 0.0).tolist() for each in numbers)
    shares, raw = map(iter, of_moves)
    return [
        {
            "q": value,
            "wdl": each,
            "moves_left": plies,
            "policy": dict(zip(legal, shares, strict=False)),
            "logits": dict(zip(legal, raw, strict=False)),
        }
        for value, each, plies, legal in zip(
            q, wdl_lists, moves_left, map(Game.legal_moves, games), strict=True
        )
    ]


class Evaluations:
    """Collect the positions of queries with `nodes` 0 into batches. Only the scheduler's thread may use it.

    accepts_more: True if another position may be added.
    """

    def __init__(
        self,
        pool: SearchPool,
        options: Options,
        post: Post,
        answered: Callable[[Sequence[Task], Sequence[dict[str, Any]], bool], None],
    ) -> None:
        """answered: called with positions, their answers, and True if no evaluator is available."""
        self._pool = pool
        self._options = options
        self._post = post
        self._answered = answered
        self._waiting: dict[tuple[str, str], list[Task]] = {}  # By network and history_fill.
        self._in_flight = 0  # Batches.
        self._positions = 0  # TaskQueue and in flight.

    @property
    def accepts_more(self) -> bool:
        return self._positions < (BATCHES_IN_FLIGHT + 1) * self._size

    @cached_property
    def _links(self) -> list[EvaluatorLink]:
        return self._pool.links(self._options)

    @property
    def _size(self) -> int:
        return batch_size(self._links, self._options)

    def add(self, task: Task, network: str) -> None:
        """Queue a position for `flush`.

        network: content hash of the network in the query; empty for the engine's network.
        """
        self._waiting.setdefault((network, task.query.options.history_fill), []).append(task)
        self._positions += 1

    def flush(self) -> None:
        """Send full batches, and others while few are in flight."""
        size = self._size
        for (network, _), tasks in self._waiting.items():
            while tasks and (len(tasks) >= size or self._in_flight < BATCHES_IN_FLIGHT):
                options = tasks[0].query.options
                sent, tasks[:size] = tasks[:size], []
                games = [task.query.game(task.turn) for task in sent]
                future = self._pool.evaluate(games, replace(options, weights=network or options.weights))
                self._in_flight += 1
                future.add_done_callback(partial(self._receive, sent, games))

    def _receive(self, tasks: list[Task], games: list[Game], future: Evaluated) -> None:
        """Receive a result. Called in the pool's thread."""
        self._post(lambda: self._answer(tasks, games, future))

    def _answer(self, tasks: list[Task], games: list[Game], future: Evaluated) -> None:
        self._in_flight -= 1
        self._positions -= len(tasks)
        lost = isinstance(future.exception(), NoEvaluatorError)
        made: list[dict[str, Any]]
        try:
            found = zip(tasks, games, outputs(games, *future.result()), strict=True)
            made = [answers.evaluation(task.query, task.turn, game, output) for task, game, output in found]
        except Exception as error:
            problem = QueryError(str(error)) if lost or isinstance(error, PipelineError) else fault(error)
            made = [answers.error(problem, task.query.id, task.turn) for task in tasks]
        self._answered(tasks, made, lost)

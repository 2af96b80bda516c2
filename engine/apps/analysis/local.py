# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches of positions in this process, on a search pool.

owner's thread   LocalSearches: starts searches, builds answers
pool's thread    searches, and reads their trees
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.apps.analysis import answers
from engine.apps.analysis.errors import QueryError, fault
from engine.apps.analysis.pace import Reporter, ReportPace
from engine.apps.analysis.restrictions import core_rules, root_moves
from engine.evaluation.errors import NoEvaluatorError
from engine.options import Options
from engine.search.limits import Limits
from engine.search.loop.search import Observer
from engine.search.pool import PoolPlayer, SearchPool

if TYPE_CHECKING:
    from engine._core import Game, Tree
    from engine.apps.analysis.query import Query
    from engine.apps.analysis.searching import Post, QueryPosition, SearchListener
    from engine.search.loop.driver import Search
    from engine.search.report import Report


@dataclass(eq=False, slots=True)
class _RunningSearch:
    """A running search. terminated: it was stopped on request. forget: discard its evaluations. seen: the
    final data of the tree, once the search is over."""

    position: QueryPosition
    game: Game
    player: PoolPlayer
    terminated: bool = False
    late: bool = False
    """Its time was over before the first evaluation, which is awaited."""
    forget: bool = False
    seen: list[answers.TreeData] = field(default_factory=list)


class LocalSearches:
    """Searches on a pool. It reuses the trees and caches of finished searches."""

    def __init__(
        self,
        pool: SearchPool,
        options: Options,
        listener: SearchListener,
        post: Post,
        *,
        most_idle: int,
        log: Callable[[str], None],
    ) -> None:
        """options: the ones for the evaluator and the engine's network. most_idle: maximum idle trees
        kept."""
        self._pool = pool
        self._base = options
        self._listener = listener
        self._post = post
        self._most_idle = most_idle
        self._log = log
        self._idle: list[PoolPlayer] = []
        """The oldest first, each with its owner's evaluations."""
        self._running: dict[int, _RunningSearch] = {}
        self._parked: dict[int, QueryPosition] = {}
        """Positions by number. Each continues the tree of a search that still stops."""
        self._pace = ReportPace()
        self._last_options: tuple[tuple[Query, str, int, int], Options] | None = None

    def begin(self, position: QueryPosition) -> None:
        """Search a position, or answer it without a search. Raises nothing."""
        owner = position.owner
        if position.query.fields.keep_tree:
            stopping = sum(
                each.terminated and each.position.owner == owner for each in self._running.values()
            )
            if stopping > sum(each.owner == owner for each in self._parked.values()):
                self._parked[position.number] = position
                return
        self._begin_now(position)

    def _begin_now(self, position: QueryPosition) -> None:
        query, answer = position.query, None
        try:
            answer = self._begin(position)
        except QueryError as problem:
            answer = answers.error(problem, query.id, position.turn)
        except Exception as error:
            self._log(f"fault in the analysis: {type(error).__name__}: {error}")
            answer = answers.error(fault(error), query.id, position.turn)
        if answer is not None:
            self._post(partial(self._listener.ended, position.number, answers.encoded(answer), False))

    def stop(self, number: int) -> None:
        """Stop the search of a position, which is answered with its results. Ignored if it has ended."""
        running, parked = self._running.get(number), self._parked.pop(number, None)
        if parked is not None:
            answer = answers.encoded(answers.no_results(parked.query.id, parked.turn))
            self._post(partial(self._listener.ended, number, answer, False))
        elif running is not None:
            running.terminated = True
            running.player.stop()

    def clear_cache(self, owner: str) -> None:
        """Discard an owner's evaluations at once; running searches discard theirs at their end."""
        self._idle = [each for each in self._idle if each.owner != owner]
        for running in self._running.values():
            running.forget |= running.position.owner == owner

    def _player(self, owner: str, options: Options) -> PoolPlayer:
        """Return an idle player with evaluations of this owner, else one without evaluations: a new one if
        there may be more."""
        for index in reversed(range(len(self._idle))):
            if self._idle[index].owner == owner:
                return self._idle.pop(index)
        more = not self._idle or len(self._idle) + len(self._running) < self._most_idle
        player = self._pool.player(options) if more else self._idle.pop(0)
        player.clear()
        player.owner = owner
        return player

    def _begin(self, position: QueryPosition) -> dict[str, Any] | None:
        """Start a search, or return the answer if there is nothing to search. Raises QueryError."""
        query = position.query
        game = query.game(position.turn)
        if not game.legal_moves():
            return answers.game_over(query, position.turn, game)
        moves = root_moves(game, query.restrictions)
        if not moves:
            raise QueryError(
                "avoid_moves and allow_moves leave no move in this position",
                "allow_moves" if any(rule.only for rule in query.restrictions) else "avoid_moves",
            )
        options = self._options_for(position)
        player = self._player(position.owner, options)
        player.options = options
        if not query.fields.keep_tree:
            player.new_game()
        running = self._running[position.number] = _RunningSearch(position, game, player)
        self._search(running, query.limits)
        return None

    def _search(self, running: _RunningSearch, limits: Limits) -> None:
        query, game, observer = running.position.query, running.game, None
        moves, rules = root_moves(game, query.restrictions), core_rules(game, query.restrictions)
        if query.fields.report_every:
            reporter = Reporter(self._pace, query.fields.report_every, partial(self._report, running))
            observer = Observer(reporter.first_seconds, reporter.look)
        future = running.player.search(
            game,
            replace(limits, search_moves=moves if query.restrictions else ()),
            prepare=lambda tree: tree.set_move_rules(rules),
            inspect=lambda tree: running.seen.append(answers.TreeData.of(tree, query)),
            observer=observer,
        )
        future.add_done_callback(lambda done: self._post(partial(self._finished, running, done)))

    def _options_for(self, position: QueryPosition) -> Options:
        """Return the options of one search."""
        query, base = position.query, self._base
        key = query, position.network, position.tree_memory, position.hash
        if self._last_options is None or self._last_options[0] != key:
            options = replace(
                query.options,
                evaluator=base.evaluator,
                weights=base.weights,
                policy_head=base.policy_head,
                value_head=base.value_head,
                tree_memory=position.tree_memory,
                hash=position.hash,
            )
            if position.network:
                heads = query.options.policy_head, query.options.value_head
                options = replace(
                    options, weights=position.network, policy_head=heads[0], value_head=heads[1]
                )
            self._last_options = key, options
        return self._last_options[1]

    def _report(self, running: _RunningSearch, search: Search, tree: Tree) -> None:
        """Report a running search. Called in the pool's thread."""
        began = perf_counter()
        report, seen = search.report(), answers.TreeData.of(tree, running.position.query)
        self._post(partial(self._tell, running, report, seen, perf_counter() - began))

    def _tell(self, running: _RunningSearch, report: Report, seen: answers.TreeData, seconds: float) -> None:
        """Answer during a search. seconds: time spent on the report so far."""
        position, began = running.position, perf_counter()
        number = position.number
        if number in self._running and self._listener.wants_report(number):
            answer = answers.analysis(
                position.query, position.turn, running.game, report, seen, during_search=True
            )
            self._listener.reported(number, answers.encoded(answer))
        self._pace.took(seconds + perf_counter() - began)

    def _finished(self, running: _RunningSearch, future: Future[Report]) -> None:
        position = running.position
        report = None if future.exception() else future.result()
        ended = report is None or report.nodes or report.ended_early or running.terminated
        if not (ended or running.late):
            running.late = True
            problem = QueryError(
                "the time was over before the first evaluation, which was awaited", "movetime"
            )
            warning = answers.encoded(answers.warning(problem, position.query.id))
            self._listener.reported(position.number, warning)
            self._search(running, Limits(nodes=1))
            return
        del self._running[position.number]
        if not running.forget and len(self._idle) < self._most_idle:
            self._idle.append(running.player)
        parked = next((each for each in self._parked.values() if each.owner == position.owner), None)
        if parked is not None:
            self._begin_now(self._parked.pop(parked.number))
        lost = isinstance(future.exception(), NoEvaluatorError) and not running.terminated
        try:
            answer = answers.encoded(self._outcome(running, future))
        except Exception as error:
            self._log(f"fault in an answer: {type(error).__name__}: {error}")
            answer = answers.encoded(answers.error(fault(error), position.query.id, position.turn))
        self._listener.ended(position.number, answer, lost)

    def _outcome(self, running: _RunningSearch, future: Future[Report]) -> dict[str, Any]:
        query, turn, seen = running.position.query, running.position.turn, running.seen
        error = future.exception()
        if error is None and future.result().nodes and seen:
            return answers.analysis(
                query, turn, running.game, future.result(), seen[-1], terminated=running.terminated
            )
        if running.terminated:
            return answers.no_results(query.id, turn)
        if error is not None and not isinstance(error, NoEvaluatorError):
            self._log(f"fault in a search: {type(error).__name__}: {error}")
        reason = future.result().ended_early if error is None else str(error)
        return answers.error(QueryError(reason or "the search found nothing out"), query.id, turn)

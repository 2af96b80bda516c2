# SPDX-License-Identifier: GPL-3.0-or-later
"""Scheduling of all clients' queries on a limited number of concurrent searches.

    lines.py, engine/apps/web   any thread: receive, end, leave, resume
    Scheduler              its own thread: parses queries, starts searches, answers
    LocalSearches          the scheduler's thread: searches on the pool
    Evaluations            the scheduler's thread: positions without a search (evaluation.py)

Only the scheduler's thread accesses the state. Calls of other threads are tasks in its inbox. A failing task
is reported and affects no other.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from engine.apps.analysis import answers
from engine.apps.analysis.actions import perform
from engine.apps.analysis.answers import encoded
from engine.apps.analysis.clients import Client, ClientTasks, QueryState, Task, TaskQueue, next_client
from engine.apps.analysis.errors import QueryError, fault
from engine.apps.analysis.evaluation import Evaluations
from engine.apps.analysis.local import LocalSearches
from engine.apps.analysis.messages import read_id, read_object, repeated_keys
from engine.apps.analysis.query import Query, read_query
from engine.apps.analysis.searching import QueryPosition
from engine.apps.analysis.settings import AnalysisSettings
from engine.evaluation.errors import NoEvaluatorError
from engine.options import Options
from engine.search.player.memory import cache_megabytes, tree_megabytes
from engine.search.pool import SearchPool
from protocol.common.settings.spec import shown

if TYPE_CHECKING:
    from protocol.wire.messages import NetworkInfo

LEAST_TREE_MEGABYTES, LEAST_HASH_MEGABYTES = 16, 1
"""Minimum memory of one search, however many there are."""


class QueryScheduler:
    """Answer the queries of clients. Methods are thread-safe, and none waits except `close`.

    log: receives messages for the operator, from several threads.
    """

    def __init__(
        self,
        options: Options,
        settings: AnalysisSettings,
        *,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.options = options
        self.settings = settings
        self._log = log
        self._on_failure: Callable[[NoEvaluatorError], None] = lambda error: None
        self.pool = SearchPool(log=log, priority="analysis")
        """The pool of all searches, for other work of class analysis, too."""
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._accounts: dict[Client, ClientTasks] = {}
        self._numbers = count(1)
        self._tasks: dict[int, Task] = {}  # Running searches, by number.
        self._searches = 0  # Maximum concurrent ones; 0 without an evaluator.
        self._searcher: LocalSearches | None = None
        self._evaluations = Evaluations(self.pool, options, self._inbox.put, self._evaluated)
        self._hashes: dict[str, str] = {}  # Of the networks, by name and by hash.
        self._asking = False  # Another thread waits for the evaluator.
        self._was_asked = False
        self._thread = threading.Thread(target=self._work, name="analysis", daemon=True)
        self._thread.start()

    def start(self, on_failure: Callable[[NoEvaluatorError], None] = lambda error: None) -> None:
        """Connect to or start the evaluator before the first query. on_failure: called with the reason if
        that fails and there has never been one."""
        self._on_failure = on_failure
        self._inbox.put(self._connect)

    def receive(self, client: Client, message: str | bytes, then: Callable[[], None] | None = None) -> None:
        """Handle a query or action of a client. then: called afterwards."""
        self._inbox.put(partial(self._receive, client, message, then))

    def refuse(self, client: Client, reason: str) -> None:
        """Answer an unreadable message of a client."""
        self._inbox.put(lambda: client.send(encoded(answers.error(QueryError(reason)))))

    def end(self, client: Client, *, at_once: bool = False) -> None:
        """Handle the end of a client's input. It is notified when all its requests are answered. Infinite
        searches end now. at_once: stop all its searches, and do not start waiting ones."""
        self._inbox.put(partial(self._end, client, at_once))

    def leave(self, client: Client) -> None:
        """Discard all requests of a client that is gone."""
        self._inbox.put(partial(self._leave, client))

    def resume(self, client: Client) -> None:
        """Continue with a client that is no longer congested."""
        self._inbox.put(self._fill)

    def close(self) -> None:
        """Stop all searches without answers, and an embedded evaluator. Idempotent."""
        self._inbox.put(None)
        self._thread.join()
        self.pool.close()

    def evaluator_pids(self) -> list[int]:
        """Return the process ids of embedded evaluators."""
        return self.pool.evaluator_pids()

    # -- for actions -------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Of the evaluator, one of actions.STATES."""
        if self._asking or not self._was_asked:
            return "starting"
        return "ready" if self._searches else "unavailable"

    def networks(self) -> tuple[NetworkInfo, ...] | None:
        """Return the evaluator's networks; None while there is no evaluator."""
        return self.pool.networks(self.options)

    def load(self) -> tuple[int, int]:
        """Return the numbers of running and waiting positions."""
        accounts = list(self._accounts.values())
        return sum(len(each.running) for each in accounts), sum(len(each.waiting) for each in accounts)

    def terminate(self, client: Client, identity: str | None, turns: tuple[int, ...] | None) -> None:
        """Stop a client's positions with this id and these turns (None: any). They are answered."""
        account = self._accounts.get(client)
        if account is not None:
            meant = None if turns is None else frozenset(turns)
            self._terminate(account, identity, lambda task: meant is None or task.turn in meant)

    def clear_cache(self, client: Client) -> None:
        """Discard a client's evaluations at once; running searches discard theirs at their end."""
        if self._searcher is not None:
            self._searcher.clear_cache(client.owner)

    # -- the scheduler's thread --------------------------------------------------------------------------

    def _work(self) -> None:
        while (piece := self._inbox.get()) is not None:
            try:
                piece()
            except Exception as error:  # An error in one query must not end all others.
                self._log(f"fault in the analysis: {type(error).__name__}: {error}")

    def _receive(self, client: Client, message: str | bytes, then: Callable[[], None] | None) -> None:
        account = self._accounts.setdefault(client, ClientTasks(client))
        identity: str | None = None
        try:
            fields, twice = read_object(message, self.settings.max_message_bytes)
            identity = read_id(fields)
            if twice:
                client.send(encoded(answers.warning(repeated_keys(twice), identity)))
            if "action" in fields:
                for answer in perform(self, client, identity, fields):
                    client.send(encoded(answer))
            else:
                query, warnings = read_query(fields, identity, self.options, self.settings.nodes)
                for problem in warnings:
                    client.send(encoded(answers.warning(problem, identity)))
                self._enqueue(account, QueryState(query, len(message)))
        except QueryError as problem:
            client.send(encoded(answers.error(problem, identity)))
        except RecursionError:
            too_deep = QueryError("the message is nested too deeply")
            client.send(encoded(answers.error(too_deep, identity)))
        except Exception as error:
            client.send(encoded(answers.error(fault(error), identity)))
            raise
        finally:
            if then is not None:
                then()
        self._fill()

    def _enqueue(self, account: ClientTasks, asked: QueryState) -> None:
        query, settings = asked.query, self.settings
        waiting, more = len(account.waiting), len(query.turns)
        if waiting + more > settings.max_queued:
            raise QueryError(
                f"{waiting:,} positions are waiting, {more:,} more would be too many: at most "
                f"{settings.max_queued:,} may wait"
            )
        if account.waiting.bytes + asked.size > settings.max_queued_bytes:
            raise QueryError(
                f"queries of {account.waiting.bytes:,} bytes are waiting, {asked.size:,} more would be too "
                f"many: at most {settings.max_queued_bytes:,} may wait"
            )
        for turn, priority in zip(query.turns, query.priorities, strict=True):
            account.waiting.add(Task(account, asked, turn, priority, next(self._numbers)))

    def _end(self, client: Client, at_once: bool) -> None:
        account = self._accounts.setdefault(client, ClientTasks(client))
        account.ended = True
        self._terminate(account, None, lambda task: at_once or task.query.limits.infinite)
        self._close_if_done(account)

    def _terminate(
        self, account: ClientTasks, identity: str | None, is_meant: Callable[[Task], bool]
    ) -> None:
        for task in account.waiting.withdraw(identity, is_meant):
            account.client.send(encoded(answers.no_results(task.query.id, task.turn)))
        for task in account.running:
            if identity in (None, task.query.id) and is_meant(task):
                self._stop(task)

    def _leave(self, client: Client) -> None:
        account = self._accounts.pop(client, None)
        if account is not None:
            account.waiting = TaskQueue()
            for task in account.running:
                self._stop(task)

    def _stop(self, task: Task) -> None:
        assert self._searcher is not None
        task.terminated = True
        self._searcher.stop(task.number)

    def _close_if_done(self, account: ClientTasks) -> None:
        open_still = account.waiting or account.running or not account.ended
        if not open_still and self._accounts.pop(account.client, None) is not None:
            account.client.done()

    # -- searches ----------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start as many searches and evaluations as the limits allow."""
        if not self._searches or self._searcher is None:
            if any(account.waiting for account in self._accounts.values()):
                self._connect()
            return
        most = self.settings.client_searches or self._searches
        while True:
            account = next_client(
                self._accounts.values(),
                len(self._tasks) < self._searches,
                most,
                evaluates=self._evaluations.accepts_more,
            )
            if account is None:
                break
            task = account.waiting.take()
            account.served = next(self._numbers)
            try:
                self._begin(task)
            except QueryError as problem:
                self._answer(task, encoded(answers.error(problem, task.query.id, task.turn)))
            except Exception as error:
                self._answer(task, encoded(answers.error(fault(error), task.query.id, task.turn)))
                raise
        self._evaluations.flush()

    def _begin(self, task: Task) -> None:
        """Start the search or evaluation of a position. Raises QueryError."""
        assert self._searcher is not None
        network = self._network(task.query)
        task.account.running.add(task)
        if not task.query.searched:
            self._evaluations.add(task, network)
            return
        tree, cache = LEAST_TREE_MEGABYTES, LEAST_HASH_MEGABYTES
        if len(self._tasks) < self._searches:  # A search beyond this number gets the minimum.
            tree = max(tree, tree_megabytes(self.options) // self._searches)
            cache = max(cache, cache_megabytes(self.options) // self._searches)
        self._tasks[task.number] = task
        self._searcher.begin(
            QueryPosition(task.number, task.query, task.turn, network, tree, cache, task.account.client.owner)
        )

    def _network(self, query: Query) -> str:
        """Return the hash of the network in a query, or "". The evaluator must not open files named by
        clients, so unknown names are refused. Raises QueryError."""
        wanted = query.fields.network
        if not wanted:
            return ""
        networks = self.networks()
        if networks is not None:  # Otherwise keep the old ones: the evaluator may return.
            names = {name: each.content_hash for each in networks for name in (each.name, each.content_hash)}
            self._hashes = names
        if wanted not in self._hashes:
            raise QueryError(
                f"the evaluator has no network {shown(wanted)}; `query_networks` lists those that it has",
                "network",
            )
        return self._hashes[wanted]

    def _answer(self, task: Task, answer: bytes) -> None:
        account = task.account
        if account.client in self._accounts:
            account.client.send(answer)
            self._close_if_done(account)

    def _evaluated(self, tasks: Sequence[Task], made: Sequence[dict[str, Any]], lost: bool) -> None:
        """Answer positions without a search. lost: True if no evaluator is available."""
        if lost:
            self._searches = 0  # The next search requests it again.
        for task, answer in zip(tasks, made, strict=True):
            task.account.running.discard(task)
            self._answer(task, encoded(answer))
        self._fill()

    # -- callbacks of the searcher -----------------------------------------------------------------------

    def wants_report(self, number: int) -> bool:
        """Return True if a report on a position would be delivered now."""
        task = self._tasks.get(number)
        if task is None:
            return False
        client = task.account.client
        return client in self._accounts and not client.congested

    def reported(self, number: int, answer: bytes) -> None:
        """Deliver an answer during a search."""
        if self.wants_report(number):
            self._tasks[number].account.client.send(answer)

    def ended(self, number: int, answer: bytes, evaluator_lost: bool) -> None:
        """Deliver the last answer for a position. evaluator_lost: True if no evaluator is available."""
        task = self._over(number)
        if evaluator_lost:
            self._searches = 0  # The next search requests it again.
        self._answer(task, answer)
        self._fill()

    def _over(self, number: int) -> Task:
        """Remove a position from the running ones, and return it."""
        task = self._tasks.pop(number)
        task.account.running.discard(task)
        return task

    # -- the evaluator -----------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Connect to or start the evaluator in the background."""
        if not self._asking:
            self._asking = self._was_asked = True
            threading.Thread(target=self._await_evaluator, name="analysis-evaluator", daemon=True).start()

    def _await_evaluator(self) -> None:
        try:
            for link in self.pool.links(self.options):
                link.start()
            searches = self.settings.searches or self.pool.recommended_games(self.options)
        except Exception as error:  # After any error, queries must not wait indefinitely.
            reason = error if isinstance(error, NoEvaluatorError) else NoEvaluatorError(str(error))
            self._inbox.put(lambda: self._has_no_evaluator(reason))
        else:
            self._inbox.put(lambda: self._has_evaluator(searches))

    def _has_evaluator(self, searches: int) -> None:
        self._asking, self._searches = False, searches
        if self._searcher is None:
            self._searcher = LocalSearches(
                self.pool, self.options, self, self._inbox.put, most_idle=searches, log=self._log
            )
        self._fill()

    def _has_no_evaluator(self, error: NoEvaluatorError) -> None:
        """Answer all waiting positions with an error. The next query starts a new attempt."""
        self._asking = False
        for account in list(self._accounts.values()):
            for task in account.waiting.withdraw():
                self._answer(task, encoded(answers.error(QueryError(str(error)), task.query.id, task.turn)))
        if not any(link.was_connected for link in self.pool.links(self.options)):
            self._on_failure(error)

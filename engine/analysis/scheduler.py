"""Which positions are searched when: queries of all clients over the searches of one pool.

    transport (lines.py, sockets.py)   any thread: receive, end, leave, resume
    Scheduler                          its own thread: reads queries, begins searches, answers
    SearchPool                         its own thread: searches; hands back reports

All state belongs to the scheduler's thread. Whatever comes from outside is a piece of work in its inbox, and
a piece that fails is told of and disturbs no other.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine.analysis import answers
from engine.analysis.actions import perform
from engine.analysis.clients import Account, Asked, Client, Task, Waiting, next_account
from engine.analysis.errors import QueryError
from engine.analysis.messages import read_id, read_object
from engine.analysis.pace import Reporter, ReportPace
from engine.analysis.query import Query, read_query
from engine.analysis.restrictions import core_rules, root_moves
from engine.analysis.settings import AnalysisSettings
from engine.evaluation.errors import NoEvaluatorError
from engine.options import Options
from engine.pool.pool import PoolPlayer, SearchPool
from engine.pool.search import Observer
from protocol.settings.spec import shown

if TYPE_CHECKING:
    from engine._core import Game, Tree
    from engine.search.driver import Search
    from engine.search.report import Report
    from protocol.messages import NetworkInfo

LEAST_TREE_MEGABYTES, LEAST_HASH_MEGABYTES = 16, 1
"""Of one search, however many there are."""


class Scheduler:
    """Answers the queries of its clients. Its methods may be called from any thread; none of them waits, but
    for `close`.

    log: takes messages for the operator, from several threads.
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
        self._pool = SearchPool(log=log, priority="analysis")
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._accounts: dict[Client, Account] = {}
        self._numbers = count(1)
        self._idle: list[PoolPlayer] = []
        self._forget: set[PoolPlayer] = set()
        self._searches = 0  # At a time; 0 while there is no evaluator.
        self._last_options: tuple[tuple[Query, str, int, int], Options] | None = None
        self._hashes: dict[str, str] = {}  # Of the evaluator's networks, by name and hash.
        self._pace = ReportPace()
        self._asking = False  # For the evaluator, in a thread of its own.
        self._running = 0
        self._thread = threading.Thread(target=self._work, name="analysis", daemon=True)
        self._thread.start()

    def start(self, on_failure: Callable[[NoEvaluatorError], None] = lambda error: None) -> None:
        """Find or start the evaluator, before anybody asks for something. on_failure: called with the reason
        when none could be had and there has never been one."""
        self._on_failure = on_failure
        self._inbox.put(self._ask_for_evaluator)

    def receive(self, client: Client, message: str | bytes, then: Callable[[], None] | None = None) -> None:
        """Read a query or action of a client. then: called when that has been done."""
        self._inbox.put(partial(self._receive, client, message, then))

    def refuse(self, client: Client, reason: str) -> None:
        """Answer something of a client that cannot be read."""
        self._inbox.put(lambda: client.send(answers.error(QueryError(reason))))

    def end(self, client: Client, *, at_once: bool = False) -> None:
        """A client asks for nothing more: it is told when all that it has asked for is answered. Searches
        that only it could end, end now. at_once: all that has begun does, and what has not is dropped."""
        self._inbox.put(partial(self._end, client, at_once))

    def leave(self, client: Client) -> None:
        """A client is gone: drop all that it has asked for."""
        self._inbox.put(partial(self._leave, client))

    def resume(self, client: Client) -> None:
        """A client is no longer congested."""
        self._inbox.put(self._fill)

    def close(self) -> None:
        """End all searches without answers, and the evaluator if it was started. Idempotent."""
        self._inbox.put(None)
        self._thread.join()
        self._pool.close()

    def evaluator_pids(self) -> list[int]:
        """Process ids of the evaluators that were started."""
        return self._pool.evaluator_pids()

    # -- for actions -------------------------------------------------------------------------------------

    def networks(self) -> tuple[NetworkInfo, ...] | None:
        """The evaluator's networks, None while there is no evaluator."""
        clients = (link.client for link in self._pool.links(self.options))
        return next((client.networks for client in clients if client is not None), None)

    def terminate(self, client: Client, identity: str | None, turns: tuple[int, ...] | None) -> None:
        """End the positions of a client of this id and these turns (None: any), with what has been found."""
        account = self._accounts.get(client)
        if account is not None:
            meant = None if turns is None else frozenset(turns)
            self._terminate(account, identity, lambda task: meant is None or task.turn in meant)

    def clear_cache(self) -> None:
        """Forget all evaluations: at once, but for the searches under way, which forget them at their end."""
        self._idle.clear()
        self._forget.update(task.player for task in self._all_running() if task.player is not None)

    # -- the scheduler's thread --------------------------------------------------------------------------

    def _work(self) -> None:
        while (piece := self._inbox.get()) is not None:
            try:
                piece()
            except Exception as error:  # A fault in one query must not end all others.
                self._log(f"fault in the analysis: {type(error).__name__}: {error}")

    def _receive(self, client: Client, message: str | bytes, then: Callable[[], None] | None) -> None:
        account = self._accounts.setdefault(client, Account(client))
        identity: str | None = None
        try:
            fields = read_object(message, self.settings.max_message_bytes)
            identity = read_id(fields)
            if "action" in fields:
                for answer in perform(self, client, identity, fields):
                    client.send(answer)
            else:
                query, warnings = read_query(fields, identity, self.options, self.settings.nodes)
                for problem in warnings:
                    client.send(answers.warning(problem, identity))
                self._enqueue(account, Asked(query, len(message)))
        except QueryError as problem:
            client.send(answers.error(problem, identity))
        except RecursionError:
            client.send(answers.error(QueryError("the message is nested too deeply"), identity))
        except Exception as error:
            client.send(answers.error(_fault(error), identity))
            raise
        finally:
            if then is not None:
                then()
        self._fill()

    def _enqueue(self, account: Account, asked: Asked) -> None:
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
        account = self._accounts.setdefault(client, Account(client))
        account.ended = True
        self._terminate(account, None, lambda task: at_once or task.query.limits.infinite)
        self._look_if_done(account)

    def _terminate(self, account: Account, identity: str | None, is_meant: Callable[[Task], bool]) -> None:
        for task in account.waiting.withdraw(identity, is_meant):
            account.client.send(answers.no_results(task.query.id, task.turn))
        for task in account.running:
            if identity in (None, task.query.id) and is_meant(task) and task.player is not None:
                task.terminated = True
                task.player.stop()

    def _leave(self, client: Client) -> None:
        account = self._accounts.pop(client, None)
        if account is not None:
            account.waiting = Waiting()
            for task in account.running:
                if task.player is not None:
                    task.player.stop()

    def _look_if_done(self, account: Account) -> None:
        open_still = account.waiting or account.running or not account.ended
        if not open_still and self._accounts.pop(account.client, None) is not None:
            account.client.done()

    # -- searches ----------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Begin as many searches as there is room for."""
        if not self._searches:
            if any(account.waiting for account in self._accounts.values()):
                self._ask_for_evaluator()
            return
        most = self.settings.client_searches or self._searches
        while True:
            account = next_account(self._accounts.values(), self._running < self._searches, most)
            if account is None:
                return
            task = account.waiting.take()
            account.served = next(self._numbers)
            try:
                self._begin(task)
            except QueryError as problem:
                self._answer(task, answers.error(problem, task.query.id, task.turn))
            except Exception as error:
                self._answer(task, answers.error(_fault(error), task.query.id, task.turn))
                raise

    def _begin(self, task: Task) -> None:
        """Search a position, or answer at once if there is nothing to search. Raises QueryError."""
        query = task.query
        game = query.game(task.turn)
        if not game.legal_moves():
            self._answer(task, answers.game_over(query, task.turn, game))
            return
        network = self._network(query)
        moves = root_moves(game, query.restrictions)
        if not moves:
            raise QueryError(
                "avoid_moves and allow_moves leave no move in this position",
                "allow_moves" if any(rule.only for rule in query.restrictions) else "avoid_moves",
            )
        options = self._options_for(query, network)
        player = task.player = self._idle.pop() if self._idle else self._pool.player(options)
        player.options = options
        player.new_game()
        rules = core_rules(game, query.restrictions)
        seen: list[answers.Seen] = []
        observer = None
        if query.fields.report_every:
            reporter = Reporter(self._pace, query.fields.report_every, partial(self._report, task, game))
            observer = Observer(reporter.seconds, reporter.look)
        future = player.search(
            game,
            replace(query.limits, search_moves=moves if query.restrictions else ()),
            prepare=lambda tree: tree.set_move_rules(rules),
            inspect=lambda tree: seen.append(answers.Seen.of(tree, query)),
            observer=observer,
        )
        self._running += 1
        task.account.running.add(task)
        future.add_done_callback(
            lambda done: self._inbox.put(partial(self._finished, task, game, done, seen))
        )

    def _options_for(self, query: Query, network: str) -> Options:
        """The options of one of many searches, which share the memory that the options allow; one beyond
        their number gets the least."""
        tree, cache = LEAST_TREE_MEGABYTES, LEAST_HASH_MEGABYTES
        if self._running < self._searches:
            tree = max(tree, self.options.tree_memory // self._searches)
            cache = max(cache, self.options.hash // self._searches)
        key = query, network, tree, cache
        if self._last_options is None or self._last_options[0] != key:
            options = replace(query.options, weights=network, tree_memory=tree, hash=cache)
            self._last_options = key, options
        return self._last_options[1]

    def _network(self, query: Query) -> str:
        """What the option WeightsFile is for a query: the hash of the network that it names. An evaluator
        that does not have it must not look for a file of a name that a client has chosen. Raises
        QueryError."""
        wanted = query.fields.network
        if not wanted:
            return self.options.weights
        for network in self.networks() or ():
            self._hashes[network.name] = self._hashes[network.content_hash] = network.content_hash
        if wanted not in self._hashes:
            raise QueryError(
                f"the evaluator has no network {shown(wanted)}; `query_networks` lists those that it has",
                "network",
            )
        return self._hashes[wanted]

    def _report(self, task: Task, game: Game, search: Search, tree: Tree) -> None:
        """In the pool's thread: a search as it stands."""
        began = perf_counter()
        report, seen = search.report(), answers.Seen.of(tree, task.query)
        self._inbox.put(partial(self._tell, task, game, report, seen, perf_counter() - began))

    def _tell(self, task: Task, game: Game, report: Report, seen: answers.Seen, seconds: float) -> None:
        """Answer during a search. seconds: spent on it so far."""
        client, began = task.account.client, perf_counter()
        if client in self._accounts and task in task.account.running and not client.congested:
            client.send(answers.analysis(task.query, task.turn, game, report, seen, during_search=True))
        self._pace.took(seconds + perf_counter() - began)

    def _finished(self, task: Task, game: Game, future: Future[Report], seen: list[answers.Seen]) -> None:
        self._running -= 1
        task.account.running.discard(task)
        player = task.player
        assert player is not None
        if player in self._forget:
            self._forget.discard(player)
        elif len(self._idle) < self._searches:
            self._idle.append(player)
        try:
            answer = self._outcome(task, game, future, seen)
        except Exception as error:
            self._log(f"fault in an answer: {type(error).__name__}: {error}")
            answer = answers.error(_fault(error), task.query.id, task.turn)
        self._answer(task, answer)
        self._fill()

    def _outcome(
        self, task: Task, game: Game, future: Future[Report], seen: list[answers.Seen]
    ) -> dict[str, Any]:
        query, turn = task.query, task.turn
        error = future.exception()
        if error is None and future.result().nodes and seen:
            return answers.analysis(query, turn, game, future.result(), seen[0], terminated=task.terminated)
        if task.terminated:
            return answers.no_results(query.id, turn)
        if isinstance(error, NoEvaluatorError):
            self._searches = 0  # It is asked for anew before the next search.
        elif error is not None:
            self._log(f"fault in a search: {type(error).__name__}: {error}")
        reason = future.result().ended_early if error is None else str(error)
        return answers.error(QueryError(reason or "the search found nothing out"), query.id, turn)

    def _answer(self, task: Task, answer: dict[str, Any]) -> None:
        account = task.account
        if account.client in self._accounts:
            account.client.send(answer)
            self._look_if_done(account)

    def _all_running(self) -> list[Task]:
        return [task for account in self._accounts.values() for task in account.running]

    # -- the evaluator -----------------------------------------------------------------------------------

    def _ask_for_evaluator(self) -> None:
        """Have the evaluator found or started, in the background."""
        if not self._asking:
            self._asking = True
            threading.Thread(target=self._await_evaluator, name="analysis-evaluator", daemon=True).start()

    def _await_evaluator(self) -> None:
        try:
            for link in self._pool.links(self.options):
                link.start()
            recommended = self._pool.recommended_games(self.options)
            searches = self.settings.searches or recommended
        except Exception as error:  # Whatever it is: it must not be waited for without end.
            reason = error if isinstance(error, NoEvaluatorError) else NoEvaluatorError(str(error))
            self._inbox.put(lambda: self._has_no_evaluator(reason))
        else:
            self._inbox.put(lambda: self._has_evaluator(searches))

    def _has_evaluator(self, searches: int) -> None:
        self._asking, self._searches = False, searches
        self._fill()

    def _has_no_evaluator(self, error: NoEvaluatorError) -> None:
        """Nothing that waits can be searched: say so. What is asked for later is another attempt."""
        self._asking = False
        for account in list(self._accounts.values()):
            for task in account.waiting.withdraw():
                self._answer(task, answers.error(QueryError(str(error)), task.query.id, task.turn))
        if not any(link.was_connected for link in self._pool.links(self.options)):
            self._on_failure(error)


def _fault(error: Exception) -> QueryError:
    """What a client is told of an error that should not be."""
    return QueryError(f"fault: {type(error).__name__}: {error}")

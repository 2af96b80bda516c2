# SPDX-License-Identifier: GPL-3.0-or-later
"""A session runs searches with options, evaluator, position and tree. UCI and the Python API use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from engine._core import Game, Tree
from engine.evaluation.connection.connecting import described
from engine.evaluation.connection.link import EvaluatorLink
from engine.evaluation.connection.process import EvaluatorSettings
from engine.evaluation.errors import EvaluatorLateError, NetworkChangedError
from engine.evaluation.late_results import LateResults
from engine.evaluation.pipeline import InstantPipeline, Pipeline, RemotePipeline
from engine.options import Options
from engine.search.batching import BatchSizes, Device
from engine.search.contempt import Contempt
from engine.search.control import SearchControl
from engine.search.driver import Search
from engine.search.fen import read_fen
from engine.search.limits import Limits
from engine.search.player import Pause, Player
from engine.search.report import Report
from engine.search.static_choice import static_lines
from engine.search.task import SearchTask
from engine.search.time.keeper import TimeKeeper
from engine.search.tree_file import read_header

if TYPE_CHECKING:
    from engine._core import TreeFileSize
    from protocol.client import EvaluatorClient
    from protocol.messages import NetworkInfo, Priority

POLL_SECONDS = 0.02
"""Longest wait for the evaluator before the limits and `stop` are checked again."""

IN_PROCESS_BATCH = 256
"""Positions per batch with the in-process evaluator, if MinibatchSize is 0."""


class Session:
    """A player's options, evaluator, position and tree. One thread at a time may use it.

    log: receives messages for the user. in_process: evaluate at random in this process. fallback: replace an
    unreachable evaluator given by address by an embedded one. bursts: False for measurements; see
    RemotePipeline. keeper: manages the clock (default: a new one). announce: log network and device once they
    are known and whenever they change.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        log: Callable[[str], None] = lambda text: None,
        in_process: bool = False,
        fallback: bool = False,
        priority: Priority = "play",
        bursts: bool = True,
        keeper: TimeKeeper | None = None,
        announce: bool = False,
    ) -> None:
        self._log = log
        self._in_process = in_process
        self._fallback = fallback
        self._priority: Priority = priority
        self._bursts = bursts
        self._announces = announce
        self._announced: NetworkInfo | None = None
        self._announced_text = self._missing = ""
        self._link: EvaluatorLink | None = None
        self._ending: list[threading.Thread] = []
        self._player = Player(options or Options(), log, tell=log, keeper=keeper)
        self._tree = self._player.tree
        self._late = LateResults()
        self.game = Game()
        self.has_position = True
        """False after `forget_position`, until a position is set."""

    @property
    def options(self) -> Options:
        return self._player.options

    @options.setter
    def options(self, options: Options) -> None:
        """Use these options from the next search on. A changed evaluator is started when it is needed."""
        self._player.options = options
        if self._link is not None and not self._link.adopt(EvaluatorSettings.of(options)):
            # Not waited for: an evaluator that hangs takes seconds to end, and a clock may run.
            ending = threading.Thread(target=self._link.close, name="evaluator-end", daemon=True)
            ending.start()
            self._ending = [thread for thread in (*self._ending, ending) if thread.is_alive()]
            self._link = None
            self._late = LateResults()  # The connection now belongs to another thread.

    @property
    def evaluator_pid(self) -> int | None:
        """Process id of the embedded evaluator, None if there is none."""
        return self._link.pid if self._link is not None else None

    # -- position ----------------------------------------------------------------------------------------

    def set_position(
        self, fen: str | None = None, moves: Sequence[str] = (), *, chess960: bool | None = None
    ) -> None:
        """Set the position to search: a FEN (None is the initial position) and UCI moves from there.

        chess960: None uses the option's value. Corrections of the FEN (Game.read) are logged. Raises
        ValueError with a reason, and leaves the position unchanged.
        """
        rules = self.options.chess960 if chess960 is None else chess960
        game, corrections = (Game(None, rules), []) if fen is None else read_fen(fen, rules)
        for number, move in enumerate(moves, 1):
            try:
                game.push_uci(move)
            except ValueError as error:
                raise ValueError(f"move {number}: {error}") from None
        if corrections:
            self._log(f"FEN corrected: {'; '.join(corrections)}")
        self.game = game
        self.has_position = True

    def forget_position(self) -> None:
        """Remove the position. Searches find no move until one is set."""
        self.game = Game(None, self.options.chess960)
        self.has_position = False

    def legal_move(self, move: str) -> str | None:
        """Return a move, castling in either notation, as `Game.legal_moves` writes it; None if illegal."""
        game = self.game.copy()
        try:
            game.push_uci(move)
        except ValueError:
            return None
        return game.moves()[-1]

    def new_game(self) -> None:
        """Clear the tree, because the next position is unrelated. Cached evaluations remain valid."""
        self.game = Game(None, self.options.chess960)
        self.has_position = True
        self._player.new_game()

    def clear(self) -> None:
        """Clear the tree and the evaluation cache."""
        self._tree.clear()

    def save_tree(self, path: str) -> TreeFileSize:
        """Save the last search's tree to a file, and return its size. Raises ValueError with a reason."""
        return self._tree.save(path)

    def load_tree(self, path: str) -> tuple[Game, TreeFileSize]:
        """Replace the tree by one from a file, and return the game of that tree and its size.

        Waits for the evaluator, because the network must be that of the file. Raises ValueError with a
        reason, and NoEvaluatorError.
        """
        game, _favoured = read_header(path)
        while not self.ready(POLL_SECONDS):
            pass
        # Contempt and the constants depend on the limits of the search that made the tree.
        try:
            return game, self._load_as_of(Limits(), game, path)
        except ValueError:
            with suppress(ValueError):
                return game, self._load_as_of(Limits(nodes=1), game, path)
            raise

    def _load_as_of(self, limits: Limits, game: Game, path: str) -> TreeFileSize:
        """Load a tree, made by a search with these limits of a game's position. Raises ValueError."""
        contempt = Contempt.of(self.options, game.turn, limits)
        self._prepare_tree(replace(self._task(limits, perf_counter()), game=game, contempt=contempt))
        return self._tree.load(path)

    def has_visits(self) -> bool:
        """Return True if the tree has visits of the position."""
        return self._tree.known(self._task(Limits(), perf_counter())) is not None

    def _prepare_tree(self, task: SearchTask) -> None:
        """Prepare the tree for a task and the network of the ready evaluator. Raises EvaluatorLateError."""
        if self._in_process:
            self._tree.prepared(task.options, 1, "in-process", contempt=task.contempt)
            return
        link = self.start_evaluator()
        client = link.client
        if client is None:
            raise EvaluatorLateError("the evaluator was lost")
        self._tree.prepared_for(task, link.network_of(client))

    # -- evaluator ---------------------------------------------------------------------------------------

    def start_evaluator(self) -> EvaluatorLink:
        """Start connecting to the evaluator, or launching it, and return at once."""
        if self._link is None:
            self._link = EvaluatorLink(EvaluatorSettings.of(self.options), self._log, fallback=self._fallback)
        self._link.start()
        return self._link

    def ready(self, timeout: float) -> bool:
        """Return True if a search can start now. Waits up to `timeout` seconds. Raises NoEvaluatorError."""
        if self._in_process:
            return True
        link = self.start_evaluator()
        client = link.wait(timeout)
        if client is not None:
            self._announce(link.network_of(client), client.max_batch)
            self._choose_network(link, client, self._task(Limits(), perf_counter()).weakened())
        return client is not None

    def _announce(self, network: NetworkInfo, max_batch: int) -> None:
        """Log the network and its device, if this is enabled and the text has changed."""
        if not self._announces or network is self._announced:
            return
        self._announced = network
        text = described(network, max_batch)
        if text != self._announced_text:
            self._announced_text = text
            self._log(text)

    def describe_evaluator(self) -> str:
        """Return the names of the network and device in use; empty while there is no connection."""
        client = self._link.client if self._link is not None else None
        if client is None:
            return ""
        network = client.network
        return f"{network.name} on {network.device or network.backend}"

    @staticmethod
    def _connected(link: EvaluatorLink, task: SearchTask, control: SearchControl) -> EvaluatorClient:
        """Return the evaluator. Waits for it as long as the limits allow. Raises NoEvaluatorError."""
        limits, overhead_ms = task.limits, task.options.move_overhead_ms
        clock = limits.clock.of(task.game.turn) if limits.clock is not None else None
        patience = float("inf")
        if clock is not None:  # Even a move without evaluations must not lose on time.
            patience = max(0.0, clock[0] - overhead_ms) / 2000
        elif limits.movetime_ms is not None and link.was_connected:  # The first start is not counted.
            patience = (limits.movetime_ms + overhead_ms) / 1000
        while True:
            began = task.started if control.clock_started is None else control.clock_started
            left = patience - (perf_counter() - began)
            client = link.wait(POLL_SECONDS if control.pondering else max(0.0, min(POLL_SECONDS, left)))
            if client is not None:
                return client
            late = perf_counter() - began >= patience and not control.pondering
            if control.stopped:
                raise EvaluatorLateError("the search was stopped before the evaluator was ready")
            if late:
                raise EvaluatorLateError("the evaluator was not ready in time")

    # -- search ------------------------------------------------------------------------------------------

    def search(
        self,
        limits: Limits,
        *,
        control: SearchControl | None = None,
        started: float | None = None,
        on_report: Callable[[Report], None] | None = None,
        play: bool = False,
    ) -> Report:
        """Search the position until a limit is met or `control` stops it, and return the report.

        started: when the clock started, in perf_counter seconds. on_report: receives intermediate reports.
        play: the move is for a game, so BookFile and the options of strength apply. With a limit `mate` the
        mate search comes first, without an evaluator. If the network changes, the search restarts with an
        empty tree and cache and the same limits. Raises NoEvaluatorError if no evaluator is ready in time.
        Losing one later ends the search early.
        """
        control = control or SearchControl(pondering=limits.ponder)
        task = self._task(limits, perf_counter() if started is None else started)
        steps, report = self._player.steps(task, control, play=play), None
        while True:
            try:
                step = steps.send(report)
            except StopIteration as end:
                result: Report = end.value
                return result
            if isinstance(step, Pause):
                report = None
                if (left := step.until - perf_counter()) > 0:
                    control.wait(left)
            elif self._in_process:
                report = self._run(self._in_process_parts(step.task), step.task, control, on_report)
            else:
                report = self._search_remotely(
                    step.task, control, None if step.secondary else on_report, announce=not step.secondary
                )

    def _choose_network(self, link: EvaluatorLink, client: EvaluatorClient, task: SearchTask) -> None:
        """Let the client use the task's network. If the evaluator has none of it, its own one plays."""
        from protocol.errors import EvaluatorError, EvaluatorLost

        try:
            link.choose(client, EvaluatorSettings.of(task.options).network)
        except EvaluatorLost:
            pass  # The search sees it, too.
        except EvaluatorError as error:
            text = f"{task.options.weights} is not at hand, so {client.network.name} plays: {error}"
            if text != self._missing:
                self._missing = text
                self._log(text)

    def _search_remotely(
        self,
        task: SearchTask,
        control: SearchControl,
        on_report: Callable[[Report], None] | None,
        *,
        announce: bool,
    ) -> Report:
        """Search with the evaluator's network. Restart if the network changes."""
        known = self._link.client if self._link is not None else None
        link = self.start_evaluator()

        def show(report: Report) -> None:
            if announce and (used := link.client) is not None:
                self._announce(used.network, used.max_batch)
            if on_report is not None:
                on_report(report)

        while True:
            client = self._connected(link, task, control)
            if task.limits.clock is None and client is not known:
                # No clock runs while an evaluator starts: the time for the move begins now.
                task = replace(task, started=perf_counter())
            self._choose_network(link, client, task)
            network = link.network_of(client)
            if announce:
                self._announce(network, client.max_batch)
            task = self._player.searched_by(task, network.identity)
            try:
                report = self._run(self._remote_parts(client, network, task, control), task, control, show)
            except NetworkChangedError:
                known = link.client
                continue
            return replace(report, network=network.identity)

    def _run(
        self,
        parts: tuple[Tree, Pipeline, BatchSizes],
        task: SearchTask,
        control: SearchControl,
        on_report: Callable[[Report], None] | None,
    ) -> Report:
        """Search from the root of a prepared tree. Raises NetworkChangedError."""
        tree, pipeline, sizes = parts
        self._tree.set_root(task)
        task = self._tree.with_tablebase_moves(task)
        search = Search(tree, pipeline, task, sizes, control=control, on_report=on_report, log=self._log)
        return search.run()

    def report_without_search(self, limits: Limits) -> Report:
        """Return a report without an evaluator: the tree's lines if it has visits, else a static choice."""
        task = self._task(limits, perf_counter())
        if not task.legal_moves:
            return Report(best_move=None, ponder=None)
        tree = self._tree.known(task)
        if tree is not None:
            return Search(
                tree, InstantPipeline(tree, 1), task, BatchSizes(1), control=SearchControl()
            ).report()
        return Report.unsearched(
            static_lines(self.game, task.root_moves, self.options.multipv, task.expected)
        )

    def _task(self, limits: Limits, started: float) -> SearchTask:
        """Return the task for the position. legal_moves is empty after the game's end and without a
        position."""
        task = self._player.task(self.game, limits, started)
        return task if self.has_position else replace(task, legal_moves=[])

    def _in_process_parts(self, task: SearchTask) -> tuple[Tree, Pipeline, BatchSizes]:
        """Return tree, pipeline and batch sizes of a search without an evaluator."""
        batch = self.options.minibatch_size or IN_PROCESS_BATCH
        tree = self._tree.prepared(
            task.options, 1, "in-process", contempt=task.contempt, solves_endings=task.level is None
        )
        sizes = BatchSizes(batch, in_flight=self.options.batches_in_flight)
        return tree, InstantPipeline(tree, batch), sizes

    def _remote_parts(
        self, client: EvaluatorClient, network: NetworkInfo, task: SearchTask, control: SearchControl
    ) -> tuple[Tree, Pipeline, BatchSizes]:
        """Return tree, pipeline and batch sizes of a search with this evaluator's network."""
        assert self._link is not None
        tree = self._tree.prepared_for(task, network)
        device = Device(network.recommended_batch, client.max_batch, network.curve)
        sizes = BatchSizes.alone(device, self.options, task.limits)
        pipeline = RemotePipeline(
            tree,
            self._link,
            capacity=sizes.capacity,
            network=network,
            priority=self._priority,
            target_ms=task.limits.target_ms(task.game.turn),
            clock_runs=lambda: not control.pondering,
            late=self._late,
            bursts=self._bursts,
        )
        return tree, pipeline, sizes

    def close(self) -> None:
        """Stop the embedded evaluator, wait for its process to exit, and disconnect. Idempotent."""
        if self._link is not None:
            self._link.close()
            self._link = None
        for thread in self._ending:
            thread.join()

# SPDX-License-Identifier: GPL-3.0-or-later
"""A session runs searches with options, evaluator, position and tree. UCI and the Python API use it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine._core import Game
from engine.evaluation.errors import EvaluatorLateError
from engine.evaluation.link.link import described
from engine.evaluation.link.process import EvaluatorSettings
from engine.evaluation.send.pipeline import InstantPipeline
from engine.evaluation.send.pooled import PooledEvaluator
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.fen import read_fen
from engine.search.limits import Limits
from engine.search.loop.batching import BatchSizes
from engine.search.loop.driver import Search
from engine.search.loop.loop import SearchLoop
from engine.search.loop.search import InstantEvaluator, PooledSearch, offers_for
from engine.search.player.player import Player
from engine.search.player.static_choice import static_lines
from engine.search.player.tree_file import read_header
from engine.search.report import Report
from engine.search.strength.contempt import Contempt
from engine.search.time.keeper import TimeKeeper

if TYPE_CHECKING:
    from engine._core import TreeFileSize
    from engine.evaluation.link.link import EvaluatorLink
    from engine.search.player.task import SearchTask
    from protocol.wire.messages import NetworkInfo, Priority

IN_PROCESS_BATCH = 256
"""Positions per batch with the in-process evaluator, if MinibatchSize is 0."""


class Session:
    """A player's options, evaluator, position and tree. One thread at a time may use it.

    log: receives messages for the user. in_process: evaluate at random in this process. fallback: replace an
    unreachable evaluator given by address by an embedded one. keeper: manages the clock (default: a new one).
    announce: log network and device once they are known and whenever they change.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        log: Callable[[str], None] = lambda text: None,
        in_process: bool = False,
        fallback: bool = False,
        priority: Priority = "play",
        keeper: TimeKeeper | None = None,
        announce: bool = False,
    ) -> None:
        self._log = log
        self._in_process = in_process
        self._fallback = fallback
        self._priority: Priority = priority
        self._announces = announce
        self._network: NetworkInfo | None = None
        """The last search's; None before the first."""
        self._announced = ""
        self._remote: PooledEvaluator[Any] | None = None
        self._ending: list[threading.Thread] = []
        self._player = Player(options or Options(), log, tell=log, keeper=keeper)
        self._loop = SearchLoop()
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
        remote = self._remote
        if remote is not None and not remote.links[0].adopt(EvaluatorSettings.of(options)):
            # Not waited for: an evaluator that hangs takes seconds to end, and a clock may run.
            ending = threading.Thread(target=remote.close, name="evaluator-end", daemon=True)
            ending.start()
            self._ending = [thread for thread in (*self._ending, ending) if thread.is_alive()]
            self._remote, self._loop.evaluators = None, ()  # The connection now belongs to another thread.

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
        self._player.tree.clear()

    def save_tree(self, path: str) -> TreeFileSize:
        """Save the last search's tree to a file, and return its size. Raises ValueError with a reason."""
        return self._player.tree.save(path)

    def load_tree(self, path: str) -> tuple[Game, TreeFileSize]:
        """Replace the tree by one from a file, and return the game of that tree and its size.

        Waits for the evaluator, because the network must be that of the file. Raises ValueError with a
        reason, and NoEvaluatorError.
        """
        game, _favoured = read_header(path)
        while not self.ready(60.0):
            pass
        # Contempt depends on the limits of the search that made the tree.
        try:
            return game, self._load_as_of(Limits(), game, path)
        except ValueError:
            with suppress(ValueError):
                return game, self._load_as_of(Limits(nodes=1), game, path)
            raise

    def _load_as_of(self, limits: Limits, game: Game, path: str) -> TreeFileSize:
        """Load a tree, made by a search with these limits of a game's position. Raises ValueError."""
        contempt = Contempt.of(self.options, game.turn, limits)
        task = replace(self._task(limits, perf_counter()), game=game, contempt=contempt)
        _key, offers = offers_for(self._evaluator, self._player, task)
        if not offers:
            raise EvaluatorLateError("the evaluator was lost")
        self._player.tree.prepared_for(task, offers[0].network)
        return self._player.tree.load(path)

    def has_visits(self) -> bool:
        """Return True if the tree has visits of the position."""
        return self._player.tree.tree_at(self._task(Limits(), perf_counter())) is not None

    # -- evaluator ---------------------------------------------------------------------------------------

    @property
    def _evaluator(self) -> PooledEvaluator[Any] | InstantEvaluator:
        """The evaluator, created if necessary."""
        if self._in_process:
            return InstantEvaluator(self.options.minibatch_size or IN_PROCESS_BATCH, self._log)
        if self._remote is None:
            self._remote = PooledEvaluator(
                EvaluatorSettings.of(self.options),
                self._log,
                self._priority,
                self._loop.interrupt,
                spread=False,
                fallback=self._fallback,
            )
            self._loop.use([self._remote])
        return self._remote

    def start_evaluator(self) -> EvaluatorLink:
        """Start connecting to the evaluator, or launching it, and return at once."""
        evaluator = self._evaluator
        assert isinstance(evaluator, PooledEvaluator)
        (link,) = evaluator.links
        link.start()
        return link

    def ready(self, timeout: float) -> bool:
        """Return True if a search can start now. Waits up to `timeout` seconds. Raises NoEvaluatorError."""
        if self._in_process:
            return True
        client = self.start_evaluator().wait(timeout)
        if client is None:
            return False
        task = self._task(Limits(), perf_counter())
        _key, offers = offers_for(self._evaluator, self._player, task)
        if offers:
            self._announce(offers[0].network, offers[0].max_batch)
            offers_for(self._evaluator, self._player, task.weakened())
        return bool(offers)

    def _announce(self, network: NetworkInfo, max_batch: int) -> None:
        """Log the network and its device, if this is enabled and the text has changed."""
        if network is self._network:
            return
        self._network = network
        text = described(network, max_batch)
        if self._announces and text != self._announced:
            self._announced = text
            self._log(text)

    def describe_evaluator(self) -> str:
        """Return the names of the network and device in use; empty while there is no connection."""
        network = self._network
        return "" if network is None else f"{network.name} on {network.device or network.backend}"

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
        task = self._task(limits, perf_counter() if started is None else started)
        running = PooledSearch(
            self._evaluator,
            self._player,
            task,
            control=control or SearchControl(pondering=limits.ponder),
            play=play,
            evaluates_mates=False,
            keeps_time=True,
            on_report=on_report,
            on_begin=self._announce,
        )
        if not running.take_first_step():
            self._run(running)
        return running.future.result()

    def _run(self, running: PooledSearch) -> None:
        """Run a search to its end, in this thread."""
        self._loop.add(running)
        try:
            while self._loop.active:
                self._loop.step()
        except BaseException:
            running.abandon()
            self._loop.remove(running)
            raise

    def report_without_search(self, limits: Limits) -> Report:
        """Return a report without an evaluator: the tree's lines if it has visits, else a static choice."""
        task = self._task(limits, perf_counter())
        if not task.legal_moves:
            return Report(best_move=None, ponder=None)
        tree = self._player.tree.tree_at(task)
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

    def close(self) -> None:
        """Stop the embedded evaluator, wait for its process to exit, and disconnect. Idempotent."""
        if self._remote is not None:
            self._remote.close()
            self._remote, self._loop.evaluators = None, ()
        for thread in self._ending:
            thread.join()
        self._loop.close()

# SPDX-License-Identifier: GPL-3.0-or-later
"""A player: what one side keeps between its searches, and the steps of a move.

    steps = player.steps(task, control, play=True)
    report = None
    while True:
        try:
            step = steps.send(report)
        except StopIteration as end:
            return end.value                # the report of the move
        report = search(step.task) if isinstance(step, NetworkSearch) else wait(step.until)

The steps are the same for a session, which waits in its thread, and for a pool, which waits for many searches
at once: opening book, levels and human play, mate search, the network's search, human time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from math import inf
from random import Random
from time import perf_counter

from engine._core import Game
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Limits
from engine.search.player.book import book_report
from engine.search.player.mate import MateSearch
from engine.search.player.static_choice import continued
from engine.search.player.task import SearchTask
from engine.search.player.tree import SearchTree
from engine.search.report import Line, Report
from engine.search.strength.contempt import Contempt
from engine.search.strength.human_time import believable_seconds
from engine.search.strength.levels import with_second_network
from engine.search.time.keeper import TimeKeeper
from protocol.common.included import INCLUDED_NETWORKS


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until a time in perf_counter seconds, or until `stop`; not at all if it is over. while_pondering:
    wait no longer than the opponent thinks."""

    until: float
    while_pondering: bool = False

    def is_over(self, control: SearchControl) -> bool:
        """Return True if the wait has ended."""
        if control.stopped or (self.while_pondering and not control.pondering):
            return True
        return self.until <= perf_counter()


@dataclass(frozen=True, slots=True)
class NetworkSearch:
    """Search a task with its network, and send the report. secondary: not the search of the move."""

    task: SearchTask
    secondary: bool = False


Steps = Generator[Pause | NetworkSearch, Report | None, Report]


class Player:
    """One side's options, tree, clock and expectations. One thread at a time may use it.

    log: receives problems. tell: receives messages about a move, of the book or the mate search. random: for
    the book, levels, noise and temperature.
    """

    def __init__(
        self,
        options: Options,
        log: Callable[[str], None],
        *,
        tell: Callable[[str], None] = lambda text: None,
        random: Random | None = None,
        keeper: TimeKeeper | None = None,
    ) -> None:
        self.tree = SearchTree(log)
        self.random = random or Random()
        self.keeper = keeper or TimeKeeper()
        self._log = log
        self._tell = tell
        self._last: tuple[str, list[str], Line] | None = None
        self._network = ""
        self._reported = self._advice = ""
        self.options = options

    @property
    def options(self) -> Options:
        """The options of the next search."""
        return self._options

    @options.setter
    def options(self, options: Options) -> None:
        self._options = options
        self.tree.use_tablebases(options.syzygy_path, self._log)

    def log_once(self, text: str) -> None:
        """Log a problem unless it was the last one."""
        if text != self._reported:
            self._reported = text
            self._log(text)

    def _tell_once(self, text: str) -> None:
        if text != self._advice:
            self._advice = text
            self._tell(text)

    def new_game(self) -> None:
        """Clear the tree, because the next position is unrelated. Cached evaluations remain valid."""
        self._last = None
        self.tree.new_game()
        self.keeper.new_game()

    def task(self, game: Game, limits: Limits, started: float) -> SearchTask:
        """Return the task for a game's position. started: when the clock started, in perf_counter seconds."""
        return SearchTask(
            game,
            game.legal_moves(),
            limits,
            self._options,
            started,
            self.random,
            self.keeper,
            self._expected(game),
            contempt=Contempt.of(self._options, game.turn, limits),
        )

    def searched_by(self, task: SearchTask, network: str) -> SearchTask:
        """Return the task for a network (NetworkInfo.identity), which expects nothing if it is a new one."""
        if network == self._network:
            return task
        self._network = network
        return replace(task, expected=None)

    def steps(
        self, task: SearchTask, control: SearchControl, *, play: bool, evaluates_mates: bool = False
    ) -> Steps:
        """Yield the steps of a task, and return its report.

        play: the move is for a game, so BookFile and the options of strength apply. evaluates_mates: search
        the root also after a mate was found, for its evaluation. With a limit `mate` the mate search comes
        first, without an evaluator.
        """
        game, limits = task.game, task.limits
        if play:
            task = task.weakened()
        if not task.legal_moves:
            return Report(best_move=None, ponder=None)
        if play and (found := book_report(game, limits, self._options, self.random, self._log)):
            self._tell(f"book move {found.best_move}, {found.lines[0].prior:.0%} of the position's weights")
            return found
        if task.level is not None:
            if task.level.elo is None and task.options.weights in ("", *INCLUDED_NETWORKS):
                self._tell_once("HumanPlay: `wavefront get maia-1500` fetches a network that imitates people")
            task = yield from self._level_steps(task, control)
        mate = None
        if limits.mate is not None and not limits.infinite:
            mate, task = yield from self._mate_steps(task, control)
        if mate is not None and not evaluates_mates:
            report = mate
        else:
            if mate is not None:
                task = replace(task, limits=Limits(nodes=1, search_moves=limits.search_moves))
            searched = yield NetworkSearch(task)
            assert searched is not None
            report = searched
            if mate is not None:
                report = replace(searched, best_move=mate.best_move, ponder=mate.ponder, lines=mate.lines)
        self.tree.tell_damage(self._log)
        if task.level is not None and task.options.human_time:
            yield from self._human_time(task, control, report)
        if report.nodes:
            self._last = game.start_fen(), game.moves(), report.lines[0]
        return report

    def _level_steps(
        self, task: SearchTask, control: SearchControl
    ) -> Generator[Pause | NetworkSearch, Report | None, SearchTask]:
        """Return a level's task once the opponent has moved, with the second network's policy, if any."""
        if control.pondering:
            # Visits of a ponder search would make the level stronger.
            yield Pause(inf, while_pondering=True)
            limits = replace(task.limits, ponder=False)
            task = replace(task, limits=limits, started=control.clock_started or perf_counter())
        level = task.level
        if level is None or not level.mix:
            return task
        second = replace(task, options=with_second_network(task.options), level=None)
        yield NetworkSearch(second, secondary=True)
        # The tree now has the second network's values, so the next search clears it.
        tree = self.tree.tree_at(second)
        policy = {} if tree is None else {child.move: child.policy for child in tree.children()}
        return replace(task, level=replace(level, second=policy))

    def _mate_steps(
        self, task: SearchTask, control: SearchControl
    ) -> Generator[Pause, Report | None, tuple[Report | None, SearchTask]]:
        """Run the mate search. Return its report, or None and what the network searches."""
        search = MateSearch(task, control)
        while search.advance():
            if text := search.progress_text():
                self._tell(text)
            yield Pause(0.0)
        report = search.report()
        if report is None:
            self._tell(search.verdict())
        return report, search.remaining_task()

    def _human_time(
        self, task: SearchTask, control: SearchControl, report: Report
    ) -> Generator[Pause, Report | None, None]:
        """Wait until a person would move, or until `stop`."""
        if task.limits.clock is None or control.pondering:
            return
        forced = len(task.legal_moves) == 1
        seconds = believable_seconds(
            task.limits.clock, task.game.turn, task.fullmove, report, forced=forced, random=self.random
        )
        started = task.started if control.clock_started is None else control.clock_started
        yield Pause(started + seconds)

    def _expected(self, game: Game) -> Line | None:
        """Return the rest of the last search's line, if the game has followed it."""
        if self._last is None or self._last[0] != game.start_fen():
            return None
        _start, before, line = self._last
        return continued(line, before, game.moves())

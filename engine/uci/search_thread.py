# SPDX-License-Identifier: GPL-3.0-or-later
"""The thread that runs one `go`, up to its best move."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from engine.uci.text import best_move_line, info_lines, statistics_lines

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.limits import Limits
    from engine.search.report import Report
    from engine.search.session import Session
    from engine.uci.output import Output


class SearchThread:
    """A running or finished search. The constructor starts it.

    give_up: called with the reason if there is no evaluator, and so no best move. ended: called by the thread
    with this object after the best move was sent.
    """

    def __init__(
        self,
        session: Session,
        limits: Limits,
        received: float,
        output: Output,
        *,
        debug: bool,
        give_up: Callable[[str], None],
        ended: Callable[[SearchThread], None],
    ) -> None:
        """received: arrival of `go` in perf_counter seconds. debug: report more at the search's end."""
        from engine.search.control import SearchControl

        self.limits = limits
        self._session = session
        self._received = received
        self._output = output
        self._debug = debug
        self._give_up = give_up
        self._ended = ended
        self._control = SearchControl(pondering=limits.ponder)
        self._concluded = False
        self._thread = threading.Thread(target=self._run, name="search")
        self._thread.start()

    @property
    def running(self) -> bool:
        """True until the best move is sent."""
        return self._thread.is_alive() and not self._concluded

    @property
    def ends_by_itself(self) -> bool:
        """True if it needs neither `stop` nor `ponderhit`."""
        return not self.limits.unbounded and not self._control.pondering

    def stop(self) -> None:
        """Stop the search; the best move follows."""
        self._control.stop()

    def ponder_hit(self, received: float) -> None:
        """Start the clock at this time in perf_counter seconds: the expected move was played."""
        self._control.ponder_hit(received)

    def join(self) -> None:
        """Wait for the best move."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._search()
        finally:
            self._ended(self)

    def _search(self) -> None:
        from engine.evaluation.errors import EvaluatorLateError, NoEvaluatorError

        session, limits, control, output = self._session, self.limits, self._control, self._output
        options = session.options

        def show(report: Report) -> None:
            output.send(info_lines(report, options))
            if options.log_live_stats:
                (output.send if options.verbose_move_stats else output.log)(statistics_lines(report))
            if output.broken:
                control.stop()

        try:
            report = session.search(
                limits, control=control, started=self._received, on_report=show, play=True
            )
        except EvaluatorLateError as error:
            output.info_string(str(error) if control.stopped else f"error: {error}")
            report = session.report_without_search(limits)
        except NoEvaluatorError as error:
            self._give_up(str(error))
            return
        except Exception as error:
            # Do not lose the game by silence: report the error and play a legal move.
            output.info_string(f"error: {error or repr(error)}")
            report = session.report_without_search(limits)
        # UCI forbids an answer to `go infinite` and `go ponder` before `stop` or `ponderhit`.
        control.wait_until_due(infinite=limits.infinite)
        self._conclude(report, options)

    def _conclude(self, report: Report, options: Options) -> None:
        output = self._output
        self._concluded = True  # Before the GUI reads the best move and sends the next command.
        if report.best_move is None:
            output.send(f"info depth 0 score {'mate 0' if self._session.game.in_check else 'cp 0'}")
        else:
            if self._debug:
                ended_ms = 1000 * (perf_counter() - self._received - report.seconds)
                output.info_string(
                    f"evaluations {report.evaluations} mean batch {report.mean_batch:.1f} "
                    f"cache hits {report.cache_hits} first batch after {report.first_batch_ms:.2f} ms "
                    f"ended {ended_ms:.2f} ms ago"
                )
            if report.statistics:
                (output.send if options.verbose_move_stats else output.log)(statistics_lines(report))
            output.send(info_lines(report, options))
        output.send(best_move_line(report))

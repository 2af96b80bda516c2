"""The UCI loop: takes commands from standard input, obeys them and answers.

One thread reads standard input, the one that calls `UciEngine.run` obeys, and each search has a third.
`uciok` must come within 0.3 s of a cold start, so numpy, ZeroMQ and the native core are imported only when a
position is set.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from engine.options import OPTIONS, OptionError, Options
from engine.uci.output import Output, best_move_line, info_lines, option_line, statistics_lines
from engine.uci.parse import (
    CommandError,
    parse_go,
    parse_position,
    parse_setoption,
    read_lines,
    shown,
)

if TYPE_CHECKING:
    from engine.search.control import SearchControl
    from engine.search.limits import Limits
    from engine.search.report import Report
    from engine.session import Session

READY_SECONDS = 600.0
"""Longest that `readyok` waits for the evaluator: a large network may take a while to load the first time."""

BUTTON = "ClearTree"
ABOUT = "UCI_EngineAbout"


class UciEngine:
    """The engine behind one pair of standard streams."""

    def __init__(self, options: Options | None = None) -> None:
        self._output = Output()
        self._options = options or Options()
        self._session: Session | None = None
        self._commands: queue.SimpleQueue[tuple[float, str | CommandError | None]] = queue.SimpleQueue()
        self._quitting = threading.Event()
        self._search: threading.Thread | None = None
        self._control: SearchControl | None = None
        self._limits: Limits | None = None
        self._debug = False
        self._handlers: dict[str, Callable[[list[str]], None]] = {
            "uci": self._uci,
            "isready": self._isready,
            "ucinewgame": self._ucinewgame,
            "setoption": self._setoption,
            "position": self._position,
            "stop": self._stop,
            "debug": self._set_debug,
            "register": lambda arguments: None,
        }

    def run(self) -> int:
        """Obey until `quit` or the end of input; returns the exit status."""
        if self._options.log_file:
            self._log_to(self._options.log_file)
        threading.Thread(target=self._read, name="uci-input", daemon=True).start()
        try:
            while not self._output.broken:
                received, line = self._commands.get()
                if line is None:
                    self._finish_bounded_search()
                    break
                if isinstance(line, CommandError):
                    self._output.info_string(str(line))
                    continue
                self._output.heard(line)
                name, *arguments = line.split() or [""]
                if name == "quit":
                    break
                self._obey(name, arguments, received)
        except KeyboardInterrupt:
            pass
        finally:
            self._end_search()
            if self._session is not None:
                self._session.close()
        return 0

    def _read(self) -> None:
        for line in read_lines(0):
            if line == "quit":
                self._quitting.set()
            self._commands.put((perf_counter(), line))
        self._quitting.set()
        self._commands.put((perf_counter(), None))

    def _obey(self, name: str, arguments: list[str], received: float) -> None:
        try:
            if name == "go":
                self._go(arguments, received)
            elif name == "ponderhit":
                self._ponderhit(received)
            elif name in self._handlers:
                self._handlers[name](arguments)
            elif name:
                self._output.info_string(f"unknown command: {shown(name)}")
        except CommandError as error:
            self._output.info_string(f"error: {error}")

    # -- commands ----------------------------------------------------------------------------------------

    def _uci(self, arguments: list[str]) -> None:
        from protocol.host.version import __version__

        lines = [f"id name Wavefront {__version__}", "id author the Wavefront authors"]
        lines += [option_line(option) for option in OPTIONS]
        lines += [
            f"option name {BUTTON} type button",
            f"option name {ABOUT} type string default Wavefront {__version__}: "
            "MCTS over lc0 networks, with the evaluator in a process of its own",
            "uciok",
        ]
        self._output.send("\n".join(lines))

    def _isready(self, arguments: list[str]) -> None:
        if not self._searching():
            from engine.evaluation.errors import NoEvaluatorError

            try:
                session = self._opened_session()
                waited = perf_counter() + READY_SECONDS
                while not session.ready(0.05) and not self._quitting.is_set() and perf_counter() < waited:
                    pass
            except NoEvaluatorError as error:
                self._output.info_string(f"error: {error}")
        self._output.send("readyok")

    def _ucinewgame(self, arguments: list[str]) -> None:
        self._end_search()
        if self._session is not None:
            self._session.new_game()

    def _setoption(self, arguments: list[str]) -> None:
        name, value = parse_setoption(arguments)
        if name.lower() == BUTTON.lower():
            self._end_search()
            if self._session is not None:
                self._session.clear()
            return
        if name.lower() == ABOUT.lower():
            return
        try:
            options = self._options.with_uci(name, value)
        except OptionError as error:
            raise CommandError(str(error)) from None
        if options.log_file != self._options.log_file:
            self._log_to(options.log_file)
        # A search that runs goes on with the options it began with; the next command sees the new ones.
        self._options = options

    def _position(self, arguments: list[str]) -> None:
        command = parse_position(arguments)
        self._end_search()
        try:
            self._opened_session().set_position(command.fen, command.moves)
        except ValueError as error:
            raise CommandError(f"position unchanged: {error}") from None

    def _go(self, arguments: list[str], received: float) -> None:
        self._end_search()
        session = self._opened_session()
        from engine.search.control import SearchControl

        limits, complaints = parse_go(arguments)
        legal = set(session.game.legal_moves())
        complaints += [
            f"go searchmoves: {shown(move)} is not a legal move here"
            for move in limits.search_moves
            if move not in legal
        ]
        for complaint in complaints:
            self._output.info_string(f"error: {complaint}")
        self._limits = limits
        self._control = SearchControl(pondering=limits.ponder)
        self._search = threading.Thread(
            target=self._run_search, args=(session, limits, self._control, received), name="search"
        )
        self._search.start()

    def _ponderhit(self, received: float) -> None:
        if self._control is not None:
            self._control.ponder_hit(received)

    def _stop(self, arguments: list[str]) -> None:
        if self._control is not None:
            self._control.stop()

    def _set_debug(self, arguments: list[str]) -> None:
        if arguments not in (["on"], ["off"]):
            raise CommandError("debug is on or off")
        self._debug = arguments == ["on"]

    # -- search ------------------------------------------------------------------------------------------

    def _run_search(self, session: Session, limits: Limits, control: SearchControl, received: float) -> None:
        from engine.search.report import Report

        options = session.options

        def show(report: Report) -> None:
            self._output.send(info_lines(report, options))
            if self._output.broken:
                control.stop()

        try:
            report = session.search(limits, control=control, started=received, on_report=show)
        except Exception as error:
            # Whatever went wrong, a game is not lost by silence: the reason is told, and a legal move made.
            self._output.info_string(f"error: {error or repr(error)}")
            report = Report(best_move=next(iter(session.game.legal_moves()), None), ponder=None)
        # UCI wants no answer to `go infinite` and `go ponder` before `stop` or `ponderhit`.
        while (limits.infinite or control.pondering) and not control.stopped:
            control.wait(0.02)
        if report.lines:
            if self._debug:
                self._output.info_string(
                    f"evaluations {report.evaluations} mean batch {report.mean_batch:.1f} "
                    f"cache hits {report.cache_hits}"
                )
            if report.statistics:
                self._output.send(statistics_lines(report))
            self._output.send(info_lines(report, options))
        elif report.best_move is None:
            mated = session.game.in_check
            self._output.send(f"info depth 0 score {'mate 0' if mated else 'cp 0'}")
        self._output.send(best_move_line(report))

    def _searching(self) -> bool:
        return self._search is not None and self._search.is_alive()

    def _end_search(self) -> None:
        """Stop the search, if one runs, and wait for its best move."""
        if self._search is not None and self._control is not None:
            self._control.stop()
            self._search.join()
            self._search = self._control = None

    def _finish_bounded_search(self) -> None:
        """At the end of input: a search that ends by itself may still answer (`echo go nodes 1 | …`)."""
        if self._searching() and self._limits is not None and self._search is not None:
            if self._limits.unbounded or self._limits.ponder:
                return
            self._search.join()

    def _opened_session(self) -> Session:
        if self._session is None:
            from engine.session import Session

            self._session = Session(self._options, log=self._output.info_string, fallback=True)
        elif self._session.options != self._options and not self._searching():
            self._session.options = self._options
        return self._session

    def _log_to(self, path: str) -> None:
        try:
            self._output.log_to(path)
        except OSError as error:
            raise CommandError(f"LogFile: cannot write {shown(path)}: {error.strerror}") from None


def run(options: Options | None = None) -> int:
    """Speak UCI on standard input and output until `quit`."""
    return UciEngine(options).run()

# SPDX-License-Identifier: GPL-3.0-or-later
"""The UCI loop: read commands from standard input, execute and answer them (docs/reference/uci.md).

One thread reads standard input, the caller of `UciEngine.run` executes commands, and each search has a third.
`uciok` must come within 0.3 s of a cold start. So numpy, ZeroMQ and the native core are imported only when a
position is set, or after a moment without commands.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

from engine.options import ALIASES, OPTIONS, AliasValues, OptionError, Options
from engine.options.identity import ABOUT, ABOUT_TEXT, AUTHOR, CLEAR_TREE, LOAD_TREE, NAME, SAVE_TREE
from engine.uci.output import Output
from engine.uci.parse import (
    CommandError,
    complete_clock,
    parse_command,
    parse_go,
    parse_position,
    parse_setoption,
    read_lines,
    shown,
)
from engine.uci.search_thread import SearchThread
from engine.uci.text import option_line
from protocol.common.printing import failing_as
from protocol.common.processes import own_input

if TYPE_CHECKING:
    from engine.search.session import Session

READY_SECONDS = 600.0
"""Longest delay of `readyok` for the evaluator: the first load of a large network may take long."""

QUIET_SECONDS = 0.5
"""Silence after `uci` or an option after which the evaluator is started: the GUI has set its options. On a
busy machine they come tenths of a second late, and may name another evaluator."""

MOST_COMPLAINTS = 10
"""Maximum errors reported for one command."""

COMMANDS = {
    "uci": "list the options",
    "setoption name NAME value VALUE": "set one of them",
    "isready": "answer when a search can start at once",
    "ucinewgame": "forget the last game",
    "position startpos | fen FEN [moves MOVE …]": "set the position",
    "go nodes N | movetime MS | depth N | mate N | infinite | wtime MS btime MS …": "search it",
    "stop, ponderhit": "end the search, or start its clock",
    "debug on | off": "tell more about each search",
    "quit": "end",
}
"""What `help` shows."""

Command: TypeAlias = str | CommandError | SearchThread | None
"""A line, an error in one, a search that has sent its best move, or None at the end of input."""

ENDING = ("stop", "quit")
"""Commands that stop a search even if other commands wait for its end."""


class UciEngine:
    """The engine behind one pair of standard streams."""

    def __init__(self, options: Options | None = None) -> None:
        self._output = Output()
        self._options = options or Options()
        self._alias_values = AliasValues()
        self._session: Session | None = None
        self._commands: queue.SimpleQueue[tuple[float, Command]] = queue.SimpleQueue()
        # Commands that arrived while an earlier one waited for a search.
        self._postponed: deque[tuple[float, Command]] = deque()
        self._quitting = threading.Event()
        self._search: SearchThread | None = None
        self._debug = False
        self._quiet_start = False
        self._failed = threading.Event()
        self._handlers: dict[str, Callable[[list[str], float], None]] = {
            "uci": self._uci,
            "isready": self._isready,
            "ucinewgame": self._ucinewgame,
            "setoption": self._setoption,
            "position": self._position,
            "go": self._go,
            "ponderhit": self._ponderhit,
            "stop": self._stop,
            "debug": self._set_debug,
            "register": lambda arguments, received: None,
            "help": self._help,
            "quit": lambda arguments, received: None,
        }

    def run(self) -> int:
        """Execute commands until `quit` or the end of input, and return the exit status."""
        if self._options.log_file:
            self._log_to(self._options.log_file)
        if os.isatty(0):
            print("Wavefront speaks UCI here: `help` lists commands, `quit` ends.", file=sys.stderr)
            print("For people there is `wavefront analyse`; see `wavefront --help`.", file=sys.stderr)
        lines = read_lines(own_input())
        threading.Thread(target=self._read, args=(lines,), name="uci-input", daemon=True).start()
        try:
            while not self._output.broken:
                received, line = self._next_line()
                if self._failed.is_set():
                    break
                if line is None:
                    self._finish_bounded_search()
                    break
                if isinstance(line, CommandError):
                    self._output.info_string(str(line))
                    self._forget_position()  # The line may have been a position.
                    continue
                if isinstance(line, SearchThread):  # No command waited for its end.
                    continue
                self._output.heard(line)
                name, arguments = parse_command(line, self._handlers)
                if name == "quit":
                    break
                self._obey(name, arguments, received)
        except KeyboardInterrupt:
            pass
        finally:
            self._stop_search()
            if self._session is not None:
                self._session.close()
        return 1 if self._failed.is_set() else 0

    def _read(self, lines: Iterator[str | CommandError]) -> None:
        for line in lines:
            if isinstance(line, str) and parse_command(line, self._handlers)[0] == "quit":
                self._quitting.set()
            self._commands.put((perf_counter(), line))
        self._commands.put((perf_counter(), None))

    def _next_line(self) -> tuple[float, Command]:
        """Return the next line. Start the evaluator while waiting, if it is time to."""
        if self._postponed:
            return self._postponed.popleft()
        if self._quiet_start and not self._searching():
            self._quiet_start = False
            try:
                return self._commands.get(timeout=QUIET_SECONDS)
            except queue.Empty:
                self._opened_session().start_evaluator()
        return self._commands.get()

    def _obey(self, name: str, arguments: list[str], received: float) -> None:
        try:
            if name in self._handlers:
                self._handlers[name](arguments, received)
            elif name:
                self._output.info_string(f"unknown command: {shown(name)}; `help` lists those there are")
        except CommandError as error:
            self._output.info_string(f"error: {error}")

    # -- commands ----------------------------------------------------------------------------------------

    def _uci(self, arguments: list[str], received: float) -> None:
        lines = [f"id name {NAME}", f"id author {AUTHOR}"]
        lines += [option_line(option) for option in sorted(OPTIONS, key=lambda option: option.advanced)]
        lines += [option_line(option, name) for name, option in ALIASES.items()]
        lines += [
            f"option name {CLEAR_TREE} type button",
            f"option name {SAVE_TREE} type string default <empty>",
            f"option name {LOAD_TREE} type string default <empty>",
            f"option name {ABOUT} type string default {ABOUT_TEXT}",
            "uciok",
        ]
        self._output.send("\n".join(lines))
        self._quiet_start = True

    def _help(self, arguments: list[str], received: float) -> None:
        for command, meaning in COMMANDS.items():
            self._output.info_string(f"{command}: {meaning}")

    def _isready(self, arguments: list[str], received: float) -> None:
        if not self._searching():
            from engine.evaluation.errors import NoEvaluatorError

            try:
                if not self._await_evaluator() and self._quitting.is_set():
                    return
            except NoEvaluatorError as error:
                self._output.info_string(f"error: {error}")
        self._output.send("readyok")

    def _await_evaluator(self) -> bool:
        """Wait until the evaluator is ready, and return False if it is late or `quit` has come. Raises
        NoEvaluatorError."""
        session, end = self._opened_session(), perf_counter() + READY_SECONDS
        while not (ready := session.ready(0.05)) and perf_counter() < end and not self._quitting.is_set():
            pass
        return ready

    def _ucinewgame(self, arguments: list[str], received: float) -> None:
        self._await_search()
        if self._session is not None:
            self._session.new_game()

    def _setoption(self, arguments: list[str], received: float) -> None:
        name, value = parse_setoption(arguments)
        if name.lower() == CLEAR_TREE.lower():
            self._await_search()
            if self._session is not None:
                self._session.clear()
            if value:
                self._output.info_string(f"{CLEAR_TREE} is a button: the value {shown(value)} is ignored")
            return
        for file_option in (SAVE_TREE, LOAD_TREE):
            if name.lower() == file_option.lower():
                self._use_tree_file(file_option, value)
                return
        if name.lower() == ABOUT.lower():
            return
        try:
            options = self._options.with_uci(name, value)
        except OptionError as error:
            raise CommandError(str(error)) from None
        if self._alias_values.repeated(name, options):
            return
        if options.log_file != self._options.log_file:
            self._log_to(options.log_file)
        # A running search keeps its options; the next command uses the new ones.
        self._options = options
        self._quiet_start = True

    def _use_tree_file(self, option: str, path: str) -> None:
        """Save or load the tree. Waits for a search that ends by itself, and refuses during another."""
        if path in ("", "<empty>"):  # A GUI that sets every option to its default.
            return
        search = self._search
        if search is not None and search.running and (not search.ends_by_itself or search.limits.may_not_end):
            raise CommandError(f"{option}: a search is running; send stop first")
        self._await_search()
        from engine.evaluation.errors import NoEvaluatorError
        from engine.search.player.tree_file import described, read_header

        session = self._opened_session()
        try:
            if option == LOAD_TREE and (rules := read_header(path)[0].chess960) != session.options.chess960:
                raise ValueError(f"its games have UCI_Chess960 {str(rules).lower()}")
            if option == LOAD_TREE and not self._await_evaluator():
                raise NoEvaluatorError("the evaluator is not ready")
            size = session.save_tree(path) if option == SAVE_TREE else session.load_tree(path)[1]
        except (ValueError, NoEvaluatorError) as error:
            raise CommandError(f"{option}: {shown(path)}: {error}") from None
        done = "saved to" if option == SAVE_TREE else "loaded from"
        self._output.info_string(f"tree {done} {shown(path)}: {described(size)}")

    def _position(self, arguments: list[str], received: float) -> None:
        self._await_search()
        session = self._opened_session()
        try:
            command = parse_position(arguments)
            session.set_position(command.fen, command.moves)
        except ValueError as error:
            session.forget_position()
            raise CommandError(f"no position is set: {error}") from None

    def _forget_position(self) -> None:
        self._await_search()
        self._opened_session().forget_position()

    def _go(self, arguments: list[str], received: float) -> None:
        self._await_search()
        session = self._opened_session()
        limits, complaints = parse_go(arguments)
        if not session.has_position:
            complaints.append("no position is set, as the last one was refused: there is no move")
        limits, more = complete_clock(limits, session.game.turn)
        complaints += more
        search_moves = []
        for move in limits.search_moves:
            legal = session.legal_move(move)
            if legal is None:
                complaints.append(f"go searchmoves: {shown(move)} is not a legal move here")
            else:
                search_moves.append(legal)
        self._complain(complaints)
        self._search = SearchThread(
            session,
            replace(limits, search_moves=tuple(search_moves)),
            received,
            self._output,
            debug=self._debug,
            give_up=self._fail,
            ended=lambda search: self._commands.put((perf_counter(), search)),
        )

    def _complain(self, complaints: Sequence[str]) -> None:
        """Report the errors in a command, each once, and at most MOST_COMPLAINTS."""
        different = list(dict.fromkeys(complaints))
        for complaint in different[:MOST_COMPLAINTS]:
            self._output.info_string(f"error: {complaint}")
        if len(different) > MOST_COMPLAINTS:
            self._output.info_string(f"error: and {len(different) - MOST_COMPLAINTS} more like these")

    def _ponderhit(self, arguments: list[str], received: float) -> None:
        if self._search is not None:
            self._search.ponder_hit(received)

    def _stop(self, arguments: list[str], received: float) -> None:
        if self._search is not None:
            self._search.stop()

    def _set_debug(self, arguments: list[str], received: float) -> None:
        if arguments not in (["on"], ["off"]):
            raise CommandError("debug is on or off")
        self._debug = arguments == ["on"]

    # -- search ------------------------------------------------------------------------------------------

    def _searching(self) -> bool:
        return self._search is not None and self._search.running

    def _stop_search(self) -> None:
        """Stop the running search, if any, and wait for its best move."""
        if self._search is not None:
            self._search.stop()
            self._search.join()
            self._search = None

    def _await_search(self) -> None:
        """Wait for the best move of the running search, if any. Stop it if only `stop` would end it.

        Meanwhile `stop`, `quit` and `isready` are executed at once. Other commands are postponed until after
        the waiting one.
        """
        search = self._search
        if search is None:
            return
        waits = search.ends_by_itself and not search.limits.may_not_end
        if waits and not any(self._named(each) in ENDING for each in self._postponed):
            while search.running and not self._failed.is_set():
                arrived = self._commands.get()
                if arrived[1] is search:
                    break
                if self._named(arrived) == "isready" and search.running:
                    self._output.heard("isready")
                    self._output.send("readyok")
                    continue
                self._postponed.append(arrived)
                if self._named(arrived) in ENDING:
                    break
        self._stop_search()

    def _named(self, arrived: tuple[float, Command]) -> str:
        """Return the name of a command; empty if it is not a line."""
        line = arrived[1]
        return parse_command(line, self._handlers)[0] if isinstance(line, str) else ""

    def _finish_bounded_search(self) -> None:
        """Let a search that ends by itself answer at the end of input (`echo go nodes 1 | …`)."""
        if self._search is not None and self._search.ends_by_itself:
            self._search.join()

    def _fail(self, reason: str) -> None:
        """End with exit status 1. Called by the search: moves without an evaluator would be poor, and a match
        would attribute them to the network."""
        self._output.info_string(f"error: {reason}")
        print(f"wavefront: {reason}; the engine ends, as it cannot search", file=sys.stderr, flush=True)
        self._failed.set()
        self._commands.put((perf_counter(), None))

    def _opened_session(self) -> Session:
        if self._session is None:
            from engine.search.session import Session

            self._session = Session(self._options, log=self._output.info_string, fallback=True, announce=True)
        elif self._session.options != self._options and not self._searching():
            self._session.options = self._options
        return self._session

    def _log_to(self, path: str) -> None:
        with failing_as(CommandError, f"LogFile: cannot write {shown(path)}"):
            self._output.log_to(path)


def run(options: Options | None = None) -> int:
    """Run the UCI protocol on standard input and output until `quit`, and return the exit status."""
    try:
        return UciEngine(options).run()
    except CommandError as error:  # An error in a command-line option, before UCI output starts.
        print(f"wavefront: {error}", file=sys.stderr)
        return 2

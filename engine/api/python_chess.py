# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine with the interfaces of python-chess: `chess.engine.Protocol` and `chess.engine.SimpleEngine`.

    with WavefrontEngine.open() as engine:
        result = engine.play(chess.Board(), chess.engine.Limit(nodes=100))
        print(result.move)

Programs written for `chess.engine.popen_uci` change the line that opens the engine. Calls, options, results
and errors are those of the UCI program `wavefront`, without its process and its text. The search runs in this
process; the evaluator remains in its own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Generic, NoReturn, Self, TypeVar

import chess
import chess.engine
from chess.engine import (
    INFO_ALL,
    INFO_NONE,
    AnalysisResult,
    ConfigMapping,
    EngineError,
    EngineTerminatedError,
    Info,
    InfoDict,
    Limit,
    Opponent,
    PlayResult,
)

from engine.api.chess_types import (
    best_move_of,
    infos_of,
    listed_options,
    next_limit,
    opponent_option,
    option_text,
    position_of,
    search_limits,
)
from engine.api.engine import options_of
from engine.evaluation.errors import EvaluatorLateError, NoEvaluatorError, PipelineError
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Limits
from engine.search.report import Report
from engine.session import Session
from engine.settings.identity import ABOUT, AUTHOR, CLEAR_TREE, LOAD_TREE, NAME, SAVE_TREE
from protocol.settings.spec import SettingsError

__all__ = ["WavefrontEngine", "WavefrontProtocol"]

T = TypeVar("T")

LOGGER = logging.getLogger(__name__)

POLL_SECONDS = 0.05
"""Longest wait for the evaluator before `stop` is checked again."""


@dataclass(frozen=True)
class _Request:
    """A search, as plain data. clear: clear the tree and the cache before it."""

    board: chess.Board
    limits: Limits
    options: Options
    clear: bool
    game: object


@dataclass(eq=False)
class _Command(Generic[T]):
    """A call that runs or waits for the worker. heard: receives the messages meanwhile."""

    result: asyncio.Future[T]
    control: SearchControl
    heard: Callable[[str], None]


@dataclass(frozen=True)
class _Pondering:
    """The search of the position that the engine expects to be given next."""

    request: _Request
    search: _Command[Report]

    def expects(self, request: _Request) -> bool:
        """True if its result answers the request, except for the limits, which it has."""
        expected, given = self.request, request
        return (
            expected.board == given.board
            and expected.board.move_stack == given.board.move_stack
            and expected.game == given.game
            and expected.options == given.options
            and not given.clear
            and not given.limits.search_moves
        )


class WavefrontProtocol(chess.engine.Protocol):
    """The engine as a `chess.engine.Protocol`, for asyncio; `analyse` is that of the base class.

    `open` makes one. As with other engines of python-chess, a new command ends the running one at once: its
    `play` raises CancelledError, its analysis finishes. The evaluator starts with the first `ping` or search.

    EngineError: an unlisted option, an invalid value, an illegal position or root move.
    EngineTerminatedError: there is no evaluator, or the engine was closed.
    """

    def __init__(self, session: Callable[[Callable[[str], None]], Session], options: Options) -> None:
        """Use `open` instead. session: makes the session; its argument receives messages."""
        super().__init__()
        self.options = chess.engine.UciOptionMap((option.name, option) for option in listed_options())
        self.id = {"name": NAME, "author": AUTHOR}
        self.initialized = True
        self.transport = _Transport(self)
        self._worker = ThreadPoolExecutor(1, "engine")
        self._make = session
        self._configured = options
        self._command: _Command[Any] | None = None
        self._pondering: _Pondering | None = None
        self._ending = ""
        """Why the engine has ended; empty before."""
        # Only the worker uses these.
        self._session: Session | None = None
        self._game: object = None
        self._opponent: str | None = None
        """Value of UCI_Opponent in the current game; None before the first."""

    @classmethod
    async def open(
        cls,
        weights: str | None = None,
        backend: str | None = None,
        evaluator: str | None = None,
        **options: Any,
    ) -> tuple[asyncio.SubprocessTransport, Self]:
        """Return a transport and an engine, as `chess.engine.popen_uci` does.

        Arguments are those of `engine.Engine`. `transport.close` ends the engine without waiting. Raises
        OptionError for unknown options and invalid values.
        """
        configured = options_of(weights, backend, evaluator, options)
        protocol = cls(lambda log: Session(configured, log=log, announce=True), configured)
        assert protocol.transport is not None
        return protocol.transport, protocol

    async def initialize(self) -> None:
        """Raise EngineError: `open` returns an initialized engine."""
        raise EngineError("engine already initialized")

    def send_line(self, line: str) -> NoReturn:
        """Raise EngineError: the engine runs in this process and reads no lines."""
        raise EngineError(f"the engine reads no UCI commands: {line}")

    # -- commands ----------------------------------------------------------------------------------------

    async def ping(self) -> None:
        """Wait until the engine is idle and its evaluator is ready."""
        control = SearchControl()
        await self._run(self._begin(lambda: self._await_evaluator(control), control))

    async def configure(self, options: ConfigMapping) -> None:
        """Set options by UCI name, permanently. The value of a button is None."""
        configured, clear = self._with(self._configured, options)
        self._supersede()
        self._configured = configured
        if clear:
            await self._run(self._begin(lambda: self._opened().clear(), SearchControl()))

    async def send_opponent_information(
        self, *, opponent: Opponent | None = None, engine_rating: int | None = None
    ) -> None:
        """Set UCI_Opponent, which contempt uses. engine_rating: ignored."""
        await self.configure(opponent_option(opponent))

    async def send_game_result(
        self,
        board: chess.Board,
        winner: chess.Color | None = None,
        game_ending: str | None = None,
        game_complete: bool = True,
    ) -> None:
        """Do nothing: the engine does not use results."""

    async def play(
        self,
        board: chess.Board,
        limit: Limit,
        *,
        game: object = None,
        info: Info = INFO_NONE,
        ponder: bool = False,
        draw_offered: bool = False,
        root_moves: Iterable[chess.Move] | None = None,
        options: ConfigMapping = {},  # noqa: B006 - as in the base class; not changed.
        opponent: Opponent | None = None,
    ) -> PlayResult:
        """Choose a move. Arguments: see `chess.engine.Protocol.play`. draw_offered: ignored."""
        began = perf_counter()
        options = {**options, **opponent_option(opponent)}
        request = self._request(board, limit, game, root_moves, options, ponder=ponder)
        text: InfoDict = {}

        def heard(message: str) -> None:
            text["string"] = message

        pondering = self._pondering
        if ponder and pondering is not None and pondering.expects(request) and not self._ending:
            self._pondering = None
            search = pondering.search
            search.heard = heard
            search.control.ponder_hit()
        else:
            control = SearchControl()
            search = self._begin(lambda: self._search(request, control), control, heard)
        report = await self._run(search)
        best = best_move_of(report, request.board)
        shown = infos_of(report, request.board, request.options, info)
        last: InfoDict = {**text, **shown[0]} if info else {}
        if ponder and best.move is not None and best.ponder is not None and not self._ending:
            self._ponder(request, limit, best.move, best.ponder, perf_counter() - began)
        return PlayResult(best.move, best.ponder, last)

    async def analysis(
        self,
        board: chess.Board,
        limit: Limit | None = None,
        *,
        multipv: int | None = None,
        game: object = None,
        info: Info = INFO_ALL,
        root_moves: Iterable[chess.Move] | None = None,
        options: ConfigMapping = {},  # noqa: B006 - as in the base class; not changed.
    ) -> AnalysisResult:
        """Start an analysis and return its handle. Arguments: see `chess.engine.Protocol.analysis`."""
        request = self._request(
            board, limit, game, root_moves, options, multipv=1 if multipv is None else multipv
        )
        control = SearchControl()
        analysis = AnalysisResult(stop=control.stop)

        def heard(message: str) -> None:
            if info:
                analysis.post({"string": message})

        def post(report: Report) -> None:
            infos = infos_of(report, request.board, request.options, info)

            def show() -> None:
                for each in infos:
                    analysis.post(each)

            self._post(show)

        def work() -> AnalysisResult:
            session = self._prepared(request, control)
            self._post(lambda: _resolve(command.result, analysis))
            try:
                report = self._searched(session, request, control, post)
                post(report)
                best = best_move_of(report, request.board)
            except Exception as error:
                failure = self._translated(error)
                self._post(lambda: analysis.set_exception(failure))
            else:
                self._post(lambda: analysis.set_finished(best))
            return analysis

        command = self._begin(work, control, heard)
        return await self._run(command)

    async def quit(self) -> None:
        """End the search and the engine, and wait until its evaluator has ended."""
        self._end(0, "the engine was closed")
        await asyncio.shield(self.returncode)

    # -- in the event loop -------------------------------------------------------------------------------

    def _begin(
        self,
        work: Callable[[], T],
        control: SearchControl,
        heard: Callable[[str], None] = lambda message: None,
    ) -> _Command[T]:
        """Let the worker do it after the running command, which is ended."""
        self._supersede()
        command = self._command = _Command(self.loop.create_future(), control, heard)
        result = command.result

        def run() -> None:
            if result.cancelled():
                return
            try:
                done = work()
            except Exception as error:
                failure = self._translated(error)
                self._post(lambda: _fail(result, failure))
            else:
                self._post(lambda: _resolve(result, done))
            self._post(lambda: self._finished(command))

        self._worker.submit(run)
        return command

    def _finished(self, command: _Command[Any]) -> None:
        if self._command is command:
            self._command = None

    @staticmethod
    async def _run(command: _Command[T]) -> T:
        """Return the result of a command. Cancelling this ends it."""
        try:
            return await command.result
        except asyncio.CancelledError:
            command.control.stop()
            raise

    def _supersede(self) -> None:
        """End the running command. Raises EngineTerminatedError."""
        if self._ending:
            raise EngineTerminatedError(self._ending)
        self._pondering = None
        if self._command is not None:
            self._command.result.cancel()
            self._command.control.stop()
            self._command = None

    def _ponder(
        self, request: _Request, limit: Limit, move: chess.Move, reply: chess.Move, seconds: float
    ) -> None:
        """Search the position after move and reply. seconds: that the move took."""
        board = request.board.copy()
        board.push(move)
        board.push(reply)
        limits = replace(search_limits(next_limit(limit, board.turn, seconds), board.turn), ponder=True)
        request = replace(request, board=board, limits=limits, clear=False)
        control = SearchControl(pondering=True)
        search = self._begin(lambda: self._search(request, control), control)
        # Nobody awaits it if it does not become a move.
        search.result.add_done_callback(lambda result: result.cancelled() or result.exception())
        self._pondering = _Pondering(request, search)

    def _end(self, code: int, reason: str) -> None:
        """End the search and the engine. Later commands raise EngineTerminatedError for this reason."""
        if self._ending:
            return
        self._ending = reason
        if self._command is not None:
            self._command.control.stop()
        self._pondering = None
        closed = self._worker.submit(self._close)
        self._worker.shutdown(wait=False)
        closed.add_done_callback(lambda _: self._post(lambda: self.returncode.set_result(code)))

    def _post(self, call: Callable[[], object]) -> None:
        """Call it in the event loop, from another thread."""
        with suppress(RuntimeError):  # The loop is closed: nobody waits for it.
            self.loop.call_soon_threadsafe(call)

    def _hear(self, message: str) -> None:
        LOGGER.info("%s: %s", self, message)
        if self._command is not None:
            self._command.heard(message)

    def _request(
        self,
        board: chess.Board,
        limit: Limit | None,
        game: object,
        root_moves: Iterable[chess.Move] | None,
        given: ConfigMapping,
        *,
        ponder: bool = False,
        multipv: int = 1,
    ) -> _Request:
        """Return a search of the board. Raises EngineError."""
        if self._ending:
            raise EngineTerminatedError(self._ending)
        if type(board).uci_variant != "chess":
            raise EngineError(f"the engine does not play the variant {type(board).uci_variant}")
        options, clear = self._with(self._configured, given)
        try:
            options = options.changed(chess960=board.chess960, multipv=multipv, ponder=ponder)
        except SettingsError as error:
            raise EngineError(str(error)) from None
        limits = Limits(infinite=True) if limit is None else search_limits(limit, board.turn)
        if root_moves is not None:
            moves = tuple(move.uci() for move in root_moves)
            if not moves:
                raise EngineError("root_moves: there is no move to choose from")
            limits = replace(limits, search_moves=moves)
        return _Request(board.copy(), limits, options, clear, game)

    def _with(self, options: Options, given: ConfigMapping) -> tuple[Options, bool]:
        """Return options with values by UCI name, and whether to clear the tree. Raises EngineError."""
        clear = False
        for name, value in given.items():
            option = self.options.get(name)
            if option is not None and option.is_managed():
                raise EngineError(f"{name} is managed automatically: do not set it")
            if option is not None and option.name == CLEAR_TREE:
                clear = True
            elif option is not None and option.name == ABOUT:
                continue
            elif option is not None and option.name in (SAVE_TREE, LOAD_TREE):
                if value not in (None, "", "<empty>"):
                    raise EngineError(f"{name} is an option of the UCI program only")
            elif option is not None and value is None:
                raise EngineError(f"{name} needs a value, not None")
            else:
                try:  # Of an unknown option, the error suggests the one that may be meant.
                    parsed = value if option is None else option.parse(value)
                    options = options.with_uci(name, option_text(parsed))
                except SettingsError as error:
                    raise EngineError(str(error)) from None
        return options, clear

    # -- in the worker -----------------------------------------------------------------------------------

    def _opened(self) -> Session:
        if self._session is None:
            self._session = self._make(lambda message: self._post(lambda: self._hear(message)))
        return self._session

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()

    def _await_evaluator(self, control: SearchControl) -> None:
        session = self._opened()
        while not session.ready(POLL_SECONDS) and not control.stopped:
            pass

    def _search(self, request: _Request, control: SearchControl) -> Report:
        return self._searched(self._prepared(request, control), request, control)

    def _prepared(self, request: _Request, control: SearchControl) -> Session:
        """Return the session with options, game and position of the request. Raises ValueError."""
        session = self._opened()
        if session.options != request.options:
            session.options = request.options
        if request.clear:
            session.clear()
        opponent = request.options.opponent
        if self._opponent is None or self._game != request.game or self._opponent != opponent:
            self._game, self._opponent = request.game, opponent
            session.new_game()
            # As with `isready`: no clock runs while the evaluator starts.
            self._await_evaluator(control)
        fen, moves = position_of(request.board)
        session.set_position(fen, moves, chess960=request.board.chess960)
        for move in request.limits.search_moves:
            if session.legal_move(move) is None:
                raise ValueError(f"root_moves: {move} is not legal in {session.game.fen()}")
        return session

    def _searched(
        self,
        session: Session,
        request: _Request,
        control: SearchControl,
        on_report: Callable[[Report], None] | None = None,
    ) -> Report:
        moves = (session.legal_move(move) for move in request.limits.search_moves)
        limits = replace(request.limits, search_moves=tuple(move for move in moves if move is not None))
        try:
            play = on_report is None  # Analysis ignores the book and has full strength.
            return session.search(limits, control=control, on_report=on_report, play=play)
        except EvaluatorLateError as error:
            reason = str(error)
            self._post(lambda: self._hear(reason))
            return session.report_without_search(limits)

    def _translated(self, error: Exception) -> Exception:
        """Return the error as python-chess reports it. End the engine if it has no evaluator."""
        if isinstance(error, NoEvaluatorError):
            reason = str(error)
            self._post(lambda: self._end(1, reason))
            return EngineTerminatedError(reason)
        if isinstance(error, ValueError | PipelineError):
            return EngineError(str(error))
        return error


class WavefrontEngine(chess.engine.SimpleEngine):
    """The engine as a `chess.engine.SimpleEngine`: the methods of WavefrontProtocol, blocking.

    `open` makes one. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: chess.engine.Protocol,
        *,
        timeout: float | None = 10.0,
    ) -> None:
        """Use `open` instead. Called in the thread of the event loop."""
        super().__init__(transport, protocol, timeout=timeout)
        self._loop_thread = threading.current_thread()

    @classmethod
    def open(
        cls,
        weights: str | None = None,
        backend: str | None = None,
        evaluator: str | None = None,
        *,
        timeout: float | None = 10.0,
        debug: bool | None = None,
        **options: Any,
    ) -> Self:
        """Return an engine; its event loop runs in a background thread.

        weights, backend, evaluator, options: as for `engine.Engine`. timeout, debug: as for
        `chess.engine.SimpleEngine.popen_uci`. Raises OptionError for unknown options and invalid values.
        """

        async def serve(opened: Future[Self]) -> None:
            transport, protocol = await WavefrontProtocol.open(weights, backend, evaluator, **options)
            engine = cls(transport, protocol, timeout=timeout)
            opened.set_result(engine)
            try:
                engine.returncode.set_result(await protocol.returncode)
            finally:
                engine.close()
            await engine.shutdown_event.wait()

        return chess.engine.run_in_background(serve, name=cls.__name__, debug=debug)

    def close(self) -> None:
        """End the search and the engine, and wait until its evaluator has ended. Idempotent."""
        super().close()
        if threading.current_thread() is not self._loop_thread:
            wait([self.returncode])

    def __enter__(self) -> Self:
        return self


class _Transport(asyncio.SubprocessTransport):
    """What programs use of the transport: closing the engine, and the process of its evaluator."""

    def __init__(self, protocol: WavefrontProtocol) -> None:
        super().__init__()
        self._protocol = protocol

    def close(self) -> None:
        """End the engine without waiting for it."""
        self._protocol._end(0, "the engine was closed")

    terminate = kill = close

    def is_closing(self) -> bool:
        return bool(self._protocol._ending)

    def get_pid(self) -> int:
        """Return the process id of the private evaluator; None while none runs."""
        session = self._protocol._session
        # The type of asyncio has no None, unlike its documentation.
        return None if session is None else session.evaluator_pid  # type: ignore[return-value]

    def get_returncode(self) -> int | None:
        """Return 0 after a normal end, 1 if there was no evaluator, None before."""
        code = self._protocol.returncode
        return code.result() if code.done() else None


def _resolve(result: asyncio.Future[T], value: T) -> None:
    if not result.done():
        result.set_result(value)


def _fail(result: asyncio.Future[Any], error: Exception) -> None:
    if not result.done():
        result.set_exception(error)

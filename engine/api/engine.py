# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine whose calls block until they are done.

from engine import Engine

with Engine() as engine:
    engine.position(moves=["e2e4", "e7e5"])
    result = engine.play(nodes=100)
    print(result.best_move, result.info.nodes)
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from engine._core import Game
from engine.evaluation.errors import NoEvaluatorError
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.fen import read_fen
from engine.search.limits import Clock, Limits
from engine.search.notation import read_move, uci_of
from engine.search.report import Line, Report
from engine.search.session import Session
from protocol.common.closing import Closing
from protocol.common.settings.spec import shown


class NamedMove(Protocol):
    """A move of python-chess."""

    def uci(self) -> str: ...


Move: TypeAlias = str | NamedMove
"""A move: UCI notation, or an object of python-chess."""


class EngineError(Exception):
    """A request failed. The message gives the reason."""


class PositionError(EngineError, ValueError):
    """A FEN or a move is not legal."""


class EvaluatorError(EngineError):
    """No evaluator could be reached or started, or it refused the network."""


class EngineClosedError(EngineError):
    """The engine was used after `close`."""


@dataclass(frozen=True, slots=True)
class PlayResult:
    """The move that `play` chose, in UCI notation.

    best_move: None if the game is over. ponder: expected reply, or None. info: counts and the line of play.
    """

    best_move: str | None
    ponder: str | None
    info: Report


class Analysis:
    """The analysis of a position: lines, best first, and counts."""

    def __init__(self, report: Report) -> None:
        self.report = report

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.report.lines

    @property
    def best_move(self) -> str | None:
        return self.report.best_move

    @property
    def nodes(self) -> int:
        return self.report.nodes

    @property
    def seconds(self) -> float:
        return self.report.seconds

    def __repr__(self) -> str:
        if not self.lines:
            return "<Analysis, no moves>"
        return f"<Analysis {self.best_move} q={self.lines[0].q:+.3f} nodes={self.nodes}>"


class Engine(Closing):
    """A chess engine with a position, a search tree and an evaluator.

    weights: network file in lc0's format; None uses an included one. backend: what computes it ("auto",
    "onnx", "reference", "random" …). evaluator: address of a running evaluator; None starts one that ends
    with the engine. options: other options by Python name, see configs/engine.toml (`cpuct=2.0`, `hash=128`).

    Only `stop` may be called from other threads. Use the engine as a context manager, or call `close`. Raises
    OptionError for unknown options and bad values, EvaluatorError if there is no evaluator.
    """

    def __init__(
        self,
        weights: str | None = None,
        backend: str | None = None,
        evaluator: str | None = None,
        *,
        log: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> None:
        self._session: Session | None = Session(options_of(weights, backend, evaluator, options), log=log)
        self._control: SearchControl | None = None
        try:
            while not self._opened().ready(60.0):
                pass
        except NoEvaluatorError as error:
            self.close()
            raise EvaluatorError(str(error)) from None
        except BaseException:
            self.close()
            raise

    # -- position ----------------------------------------------------------------------------------------

    def position(self, fen: str | None = None, moves: Sequence[Move] = (), *, chess960: bool = False) -> None:
        """Set the position: a FEN (None is the initial position) and moves from there.

        moves: UCI notation, SAN or moves of python-chess.
        The search keeps earlier visits of this position. If it raises PositionError, the position is
        unchanged.
        """
        session = self._opened()
        if fen is not None and not isinstance(fen, str):
            raise PositionError(f"a FEN is a text, not a {type(fen).__name__}")
        start = None if fen is None or fen.strip() == "startpos" else fen
        try:
            session.set_position(start, moves_from(start, moves, chess960), chess960=chess960)
        except ValueError as error:
            raise PositionError(str(error)) from None

    @property
    def fen(self) -> str:
        """The current position."""
        return self._opened().game.fen()

    @property
    def legal_moves(self) -> list[str]:
        """The legal moves of the position, in UCI notation."""
        return self._opened().game.legal_moves()

    def new_game(self) -> None:
        """Clear the tree and return to the initial position."""
        self._opened().new_game()

    @property
    def evaluator_address(self) -> str:
        """The address of this engine's evaluator, for further clients while the engine runs.

        Raises EvaluatorError while there is no connection.
        """
        link = self._opened().start_evaluator()
        client = link.client
        if client is None:
            raise EvaluatorError("there is no connection to an evaluator at the moment")
        return client.address

    # -- search ------------------------------------------------------------------------------------------

    def play(
        self,
        *,
        nodes: int | None = None,
        movetime: float | None = None,
        depth: int | None = None,
        mate: int | None = None,
        clock: Clock | None = None,
        search_moves: Sequence[Move] = (),
    ) -> PlayResult:
        """Choose a move within at least one limit.

        nodes: visits. movetime: milliseconds. depth: mean depth of the leaves in plies. mate: first
        look for a mate in N moves. clock: a time manager divides the time left. Raises ValueError for a bad
        limit, EvaluatorError if there is no evaluator.
        """
        limits = limits_of(nodes, movetime, depth, mate, clock, search_moves)
        report = self._search(limits, self._opened().options, play=True)
        return PlayResult(report.best_move, report.ponder, report)

    def analyse(
        self,
        *,
        nodes: int | None = None,
        movetime: float | None = None,
        depth: int | None = None,
        mate: int | None = None,
        multipv: int = 1,
        search_moves: Sequence[Move] = (),
        on_report: Callable[[Analysis], None] | None = None,
    ) -> Analysis:
        """Search the position until a limit (as in `play`) is met, and return the best `multipv` lines.

        on_report: gets the analysis a few times per second; may call `stop`. Raises the same as `play`.
        """
        limits = limits_of(nodes, movetime, depth, mate, None, search_moves)
        return self._analyse(limits, multipv, on_report)

    def analysis(
        self,
        *,
        nodes: int | None = None,
        movetime: float | None = None,
        multipv: int = 1,
        search_moves: Sequence[Move] = (),
    ) -> Iterator[Analysis]:
        """Iterate over the running analysis, indefinitely if no limit is given; the last item is final.

        Leaving the loop ends the search:

            for analysis in engine.analysis(multipv=3):
                if analysis.nodes > 10_000:
                    break
        """
        if nodes is None and movetime is None:
            limits = Limits(infinite=True, search_moves=uci_moves(search_moves))
        else:
            limits = limits_of(nodes, movetime, None, None, None, search_moves)
        control = SearchControl()
        reports: queue.SimpleQueue[Analysis | BaseException | None] = queue.SimpleQueue()

        def work() -> None:
            try:
                reports.put(self._analyse(limits, multipv, reports.put, control))
            except BaseException as error:  # Raised again in the caller's thread.
                reports.put(error)
            reports.put(None)

        thread = threading.Thread(target=work, name="analysis")
        self._control = control
        thread.start()
        try:
            while (item := reports.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            control.stop()
            thread.join()
            self._control = None

    def stop(self) -> None:
        """Stop the running search, which returns its result so far. Any thread may call it."""
        control = self._control
        if control is not None:
            control.stop()

    def close(self) -> None:
        """Stop the search and the evaluator. Idempotent."""
        self.stop()
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _opened(self) -> Session:
        if self._session is None:
            raise EngineClosedError("the engine is closed")
        return self._session

    def _analyse(
        self,
        limits: Limits,
        multipv: int,
        on_report: Callable[[Analysis], None] | None = None,
        control: SearchControl | None = None,
    ) -> Analysis:
        options = self._opened().options.changed(multipv=multipv, smart_pruning_factor=0.0)
        return Analysis(self._search(limits, options, on_report, control=control))

    def _search(
        self,
        limits: Limits,
        options: Options,
        on_report: Callable[[Analysis], None] | None = None,
        *,
        control: SearchControl | None = None,
        play: bool = False,
    ) -> Report:
        session = self._opened()
        search_moves = {move: session.legal_move(move) for move in limits.search_moves}
        illegal = [move for move, legal in search_moves.items() if legal is None]
        if illegal:
            raise PositionError(f"search_moves: {', '.join(illegal)}: not legal in {session.game.fen()}")
        limits = replace(limits, search_moves=tuple(legal for legal in search_moves.values() if legal))
        control = self._control = control or SearchControl()
        usual, session.options = session.options, options
        try:
            return session.search(
                limits,
                control=control,
                on_report=None if on_report is None else lambda report: on_report(Analysis(report)),
                play=play,
            )
        except NoEvaluatorError as error:
            raise EvaluatorError(str(error)) from None
        finally:
            session.options = usual
            self._control = None


def options_of(
    weights: str | None, backend: str | None, evaluator: str | None, options: Mapping[str, Any]
) -> Options:
    """Return the options of the keyword arguments of `Engine`. Raises OptionError."""
    given = {"weights": weights, "backend": backend, "evaluator": evaluator}
    named = {name: value for name, value in given.items() if value is not None}
    return Options().changed(**named, **options)


def uci_moves(moves: Sequence[Move]) -> tuple[str, ...]:
    """Return moves in UCI notation. Raises PositionError for what is no move."""
    texts = []
    for number, move in enumerate(moves, 1):
        text = move if isinstance(move, str) else getattr(move, "uci", lambda: None)()
        if not isinstance(text, str):
            raise PositionError(f"move {number} is a text or a chess.Move, not a {type(move).__name__}")
        texts.append(text.strip())
    return tuple(texts)


def moves_from(fen: str | None, moves: Sequence[Move], chess960: bool) -> tuple[str, ...]:
    """Return moves of a position in UCI notation, which may be given in SAN. Raises ValueError."""
    texts = uci_moves(moves)
    if all(map(uci_of, texts)):
        return texts
    game, found = Game(chess960=chess960) if fen is None else read_fen(fen, chess960)[0], []
    for number, text in enumerate(texts, 1):
        try:
            found.append(read_move(game, text))
            game.push_uci(found[-1])
        except ValueError as error:
            raise PositionError(f"move {number}: {shown(text)}: {error}") from None
    return tuple(found)


def limits_of(
    nodes: int | None,
    movetime: float | None,
    depth: int | None,
    mate: int | None,
    clock: Clock | None,
    search_moves: Sequence[Move],
) -> Limits:
    """Return the limits of the keyword arguments of `play`, at least one. Raises ValueError."""
    for name, value in (("nodes", nodes), ("depth", depth), ("mate", mate)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is at least 1, not {value}")
    if movetime is not None and not 1 <= movetime < 1e12:
        raise ValueError(f"movetime is at least 1 millisecond, not {movetime}")
    limits = Limits(
        clock=clock,
        movetime_ms=None if movetime is None else round(movetime),
        nodes=nodes,
        depth=depth,
        mate=mate,
        search_moves=uci_moves(search_moves),
    )
    if limits.unbounded:
        raise ValueError("say how long to search: nodes, movetime, depth, mate or clock")
    return limits

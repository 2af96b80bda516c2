# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks whether a program follows the UCI protocol, as GUIs, bots and match runners rely on it.

The checks of time controls are those of fastchess's `--compliance`; the others are added.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from itertools import pairwise
from time import perf_counter

import chess

from engine.match.players.uci_client import UciClient, UciError, UciOption

Check = Callable[[], Awaitable[str]]

START_SECONDS = 60.0
"""From the start to `uciok` and to `readyok`. Some programs load large files."""

ANSWER_SECONDS = 10.0
STOP_SECONDS = 2.0
OVERRUN_SECONDS = 0.5
"""Allowed time of `go movetime 200` beyond 200 ms."""

BLACK_TO_MOVE = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
MIDDLE_GAME = "r1bqkbnr/pp1ppppp/2n5/2p5/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3"
MATED = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
STALEMATE = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
CASTLING = "4k3/8/8/8/8/8/8/1R2KR2 w FB - 0 1"

WHOLE_NUMBERS = ("depth", "seldepth", "multipv", "nodes", "nps", "time", "hashfull", "tbhits", "cp", "mate")
CLOCKS = (
    "wtime 100",
    "btime 100",
    "wtime 100 winc 100 btime 100 binc 100",
    "wtime 100 btime 100 winc 100 binc 100",
)


class ComplianceError(Exception):
    """The program does not follow the protocol; the message says where."""


class Compliance:
    """The checks of one program, in order. The first must pass before the others can run."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._client = UciClient()
        self._greeting: list[str] = []

    async def checks(self) -> AsyncIterator[tuple[str, Check]]:
        """Yield the name of each check and a function that returns what it found, or raises ComplianceError.

        The caller awaits each function before it takes the next check.
        """
        yield "uci", self._uci
        if not self._greeting:
            return
        yield "isready", self._isready
        yield "options", self._options
        yield "unknown commands", self._unknown
        for fen in ("startpos", MIDDLE_GAME, BLACK_TO_MOVE):
            for clock in CLOCKS:
                place = fen if fen == "startpos" else " ".join(fen.split()[:2])
                yield f"go {clock}, {place}", partial(self._go, fen, clock)
        for go in ("nodes 1", "depth 1"):
            yield f"go {go}", partial(self._go, "startpos", go)
        yield "go movetime 200", self._movetime
        yield "go searchmoves", self._searchmoves
        yield "go infinite", self._infinite
        if "ponder" in self._client.options:
            yield "go ponder", self._ponder
        yield "no legal move", self._no_move
        yield "a long game", self._long_game
        if "multipv" in self._client.options:
            yield "MultiPV", self._multipv
        if "uci_chess960" in self._client.options:
            yield "UCI_Chess960", self._chess960
        yield "quit", self._quit

    def close(self) -> None:
        """End the program, if it still runs."""
        self._client.kill()

    # -- what is asked ---------------------------------------------------------------------------------------

    async def _ask(self, text: str, answer: str, seconds: float = ANSWER_SECONDS) -> list[str]:
        """Send lines and return what the program says, up to and with the line that begins with `answer`."""
        try:
            async with asyncio.timeout(seconds):
                said = await self._client.ask(text, answer.encode())
        except TimeoutError:
            raise ComplianceError(
                f"no {answer} within {seconds:g} s after {text.splitlines()[-1]!r}"
            ) from None
        except UciError as error:
            raise ComplianceError(str(error)) from None
        return said.decode("utf-8", "replace").splitlines()

    async def _search(self, fen: str, go: str, moves: Sequence[str] = (), score: bool = True) -> str:
        """Search a position, check what the program says, and return its move."""
        position = "position startpos" if fen == "startpos" else f"position fen {fen}"
        if moves:
            position += f" moves {' '.join(moves)}"
        lines = await self._ask(f"{position}\ngo {go}\n", "bestmove")
        board = chess.Board(None if fen == "startpos" else fen, chess960=fen == CASTLING)
        board.clear_stack()
        if fen == "startpos":
            board.reset()
        for move in moves:
            board.push_uci(move)
        return check_search(board, lines, score)

    # -- checks ----------------------------------------------------------------------------------------------

    async def _uci(self) -> str:
        try:
            self._client = await UciClient.start(self._command)
        except OSError as error:
            raise ComplianceError(f"cannot start {self._command[0]}: {error.strerror}") from None
        began = perf_counter()
        self._greeting = await self._ask("uci\n", "uciok", START_SECONDS)
        took = perf_counter() - began
        self._client.learn(self._greeting)
        for word in ("name", "author"):
            if not any(line.startswith(f"id {word} ") for line in self._greeting):
                raise ComplianceError(f"no line `id {word} …`")
        return f"uciok after {took * 1000:.0f} ms"

    async def _isready(self) -> str:
        began = perf_counter()
        await self._ask("isready\n", "readyok", START_SECONDS)
        return f"readyok after {(perf_counter() - began) * 1000:.0f} ms"

    async def _options(self) -> str:
        lines = [line for line in self._greeting if line.startswith("option ")]
        if len(self._client.options) != len(lines):
            raise ComplianceError("an `option` line has no name or type, or two have one name")
        for line, option in zip(lines, self._client.options.values(), strict=True):
            default = default_of(line)
            check_default(option, default)
            if option.kind != "button" and default not in ("", "<empty>"):
                await self._ask(
                    f"setoption name {option.name} value {default}\nisready\n", "readyok", START_SECONDS
                )
        return f"{len(lines)} options accept their defaults"

    async def _unknown(self) -> str:
        await self._ask("xyzzy\n\n  isready  \n", "readyok", START_SECONDS)
        return "ignored"

    async def _go(self, fen: str, go: str) -> str:
        await self._ask("ucinewgame\nisready\n", "readyok", START_SECONDS)
        return await self._search(fen, go)

    async def _movetime(self) -> str:
        began = perf_counter()
        await self._search(MIDDLE_GAME, "movetime 200")
        took = perf_counter() - began
        if took > 0.2 + OVERRUN_SECONDS:
            raise ComplianceError(f"took {took * 1000:.0f} ms")
        return f"{took * 1000:.0f} ms"

    async def _searchmoves(self) -> str:
        move = await self._search("startpos", "depth 1 searchmoves a2a3")
        if move != "a2a3":
            raise ComplianceError(f"played {move}, not a2a3")
        return move

    async def _infinite(self) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await self._client.ask("position startpos\ngo infinite\n", b"bestmove")
                raise ComplianceError("bestmove before stop")
        await self._ask("isready\n", "readyok", STOP_SECONDS)
        began = perf_counter()
        check_search(chess.Board(), await self._ask("stop\n", "bestmove", STOP_SECONDS), score=False)
        return f"readyok while searching; bestmove {(perf_counter() - began) * 1000:.0f} ms after stop"

    async def _ponder(self) -> str:
        await self._ask("setoption name Ponder value true\nisready\n", "readyok", START_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                go = "go ponder wtime 500 btime 500"
                await self._client.ask(f"position startpos moves e2e4 e7e5\n{go}\n", b"bestmove")
                raise ComplianceError("bestmove before ponderhit")
        board = chess.Board()
        for move in ("e2e4", "e7e5"):
            board.push_uci(move)
        return check_search(board, await self._ask("ponderhit\n", "bestmove"), score=False)

    async def _no_move(self) -> str:
        said = []
        for fen in (MATED, STALEMATE):
            lines = await self._ask(f"position fen {fen}\ngo depth 1\n", "bestmove")
            words = lines[-1].split()
            if len(words) > 1 and words[1] not in ("(none)", "0000", "NULL"):
                raise ComplianceError(f"{words[1]} where there is no move")
            said.append(" ".join(words))
        return said[0]

    async def _long_game(self) -> str:
        shuffle = ("g1f3", "g8f6", "f3g1", "f6g8")
        moves = [shuffle[ply % 4] for ply in range(600)]
        return await self._search("startpos", "movetime 100", moves, score=False)

    async def _multipv(self) -> str:
        await self._ask("setoption name MultiPV value 3\nisready\n", "readyok", START_SECONDS)
        lines = await self._ask(f"position fen {MIDDLE_GAME}\ngo movetime 300\n", "bestmove")
        await self._ask("setoption name MultiPV value 1\nisready\n", "readyok", START_SECONDS)
        for number in (1, 2, 3):
            if not any(f" multipv {number} " in line for line in lines):
                raise ComplianceError(f"no line with multipv {number}")
        return "3 lines"

    async def _chess960(self) -> str:
        await self._ask("setoption name UCI_Chess960 value true\nisready\n", "readyok", START_SECONDS)
        move = await self._search(CASTLING, "depth 1 searchmoves e1f1")
        await self._ask("setoption name UCI_Chess960 value false\nisready\n", "readyok", START_SECONDS)
        if move != "e1f1":
            raise ComplianceError(f"castles as {move}, not e1f1")
        return "castles as king takes rook"

    async def _quit(self) -> str:
        self._client.quit()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._client.exited()
        except TimeoutError:
            raise ComplianceError(f"runs on {STOP_SECONDS:g} s after quit") from None
        return "ended"


def default_of(line: str) -> str:
    """Return the default of an `option` line; empty if it has none."""
    after = line.partition(" default ")[2]
    for word in (" min ", " max ", " var "):
        after = after.partition(word)[0]
    return after.strip()


def check_default(option: UciOption, default: str) -> None:
    """Raise ComplianceError if an option has an unknown type, or a default that it does not accept."""
    if option.kind not in ("check", "spin", "combo", "button", "string"):
        raise ComplianceError(f"option {option.name} has the unknown type {option.kind}")
    if option.kind == "spin" and (option.low is None or option.high is None):
        raise ComplianceError(f"option {option.name} is a spin without min or max")
    try:
        if option.kind not in ("button", "string"):
            option.text(default)
    except UciError as error:
        raise ComplianceError(f"the default of an option is invalid: {error}") from None


def check_search(board: chess.Board, lines: Sequence[str], score: bool = True) -> str:
    """Check what a program said of a position, and return its move. Raises ComplianceError.

    score: the last `info` line must have one.
    """
    words = lines[-1].split()
    move = words[1] if len(words) > 1 else ""
    try:
        parsed = board.parse_uci(move)
    except ValueError:
        raise ComplianceError(f"bestmove {move or '(nothing)'} is not legal in {board.fen()}") from None
    if len(words) > 3 and words[2] == "ponder":
        after = board.copy()
        after.push(parsed)
        try:
            after.parse_uci(words[3])
        except ValueError:
            raise ComplianceError(f"ponder {words[3]} is not legal after {move}") from None
    infos = [line.split() for line in lines[:-1] if line.startswith("info ") and " string " not in f"{line} "]
    if score and not (infos and "score" in infos[-1]):
        raise ComplianceError("the last info line before bestmove has no score")
    for info in infos:
        check_info(board, info)
    return move


def check_info(board: chess.Board, words: Sequence[str]) -> None:
    """Check the numbers and the line of play of an `info` line."""
    for word, value in pairwise(words):
        if word == "pv":
            break
        if word in WHOLE_NUMBERS and not value.removeprefix("-").isdecimal():
            raise ComplianceError(f"{word} {value} is no whole number")
    if "pv" in words:
        after = board.copy()
        for move in words[words.index("pv") + 1 :]:
            try:
                after.push_uci(move)
            except ValueError:
                raise ComplianceError(f"the pv has {move}, which is not legal in {after.fen()}") from None

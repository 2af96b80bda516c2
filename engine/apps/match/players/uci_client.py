# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of a UCI program over pipes: start, options, and one search at a time.

It is optimised for games with thousands of moves. A search is one write, and only `bestmove` and the last
line with a score are parsed. (python-chess, which parses every line and copies the board for every move, took
two thirds of the runner's time.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from protocol.common.printing import printable
from protocol.common.processes import group_of_its_own, how_it_ended, kill_group

MAX_PENDING_BYTES = 1 << 20
"""Limit of a running search's output that is kept; older lines are discarded."""

LAST_WORDS_SECONDS = 0.2
"""Time to read standard error after the program's end."""

CLOSED_SECONDS = 1.0
"""Time from the close of standard output until the program counts as gone."""

QUIT_SECONDS = 2.0
"""Time from `quit` until the process is killed, and from there to its end."""


class UciError(Exception):
    """The program violates the UCI protocol. The message gives details."""


class ProgramGoneError(UciError):
    """The program has ended or closed its output."""


@dataclass(frozen=True, slots=True)
class UciOption:
    """An option of a program. low, high: of a spin. choices: of a combo."""

    name: str
    kind: str
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()

    def text(self, value: str | int | bool | None) -> str:
        """Return the value for `setoption`. Raises UciError with the valid values."""
        if self.kind == "check":
            if str(value).lower() not in ("true", "false"):
                raise UciError(f"{self.name} is true or false, not {value!r}")
            return str(value).lower()
        if self.kind == "spin":
            try:
                number = int(str(value))
            except ValueError:
                raise UciError(f"{self.name} is a whole number, not {value!r}") from None
            if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
                raise UciError(f"{self.name} is {self.low} to {self.high}, not {number}")
            return str(number)
        text = "" if value is None else str(value)
        if self.kind == "combo" and text.lower() not in (choice.lower() for choice in self.choices):
            raise UciError(f"{self.name} is one of {', '.join(self.choices)}, not {text!r}")
        return text


@dataclass(frozen=True, slots=True)
class UciAnswer:
    """The result of a search. move: as the program wrote it, or None. The other fields, see MoveRecord, are
    from its last line with a score, for the mover; None if missing."""

    move: str | None
    score_cp: int | None = None
    mate: int | None = None
    depth: int | None = None
    selective_depth: int | None = None
    nodes: int | None = None
    ponder: str | None = None


class UciClient(asyncio.SubprocessProtocol):
    """A running program. Only the event loop that started it may use it.

    name: as the program calls itself. options: by name in lower case. last_words: last lines of standard
    error. went_at, answered_at: perf_counter seconds of the last search's `go` and `bestmove`.
    """

    def __init__(self) -> None:
        self.name = ""
        self.options: dict[str, UciOption] = {}
        self.last_words: deque[str] = deque(maxlen=3)
        self.went_at = 0.0
        self.answered_at = 0.0
        self._transport: asyncio.SubprocessTransport | None = None
        self._input: asyncio.WriteTransport | None = None
        self._pending = bytearray()
        self._errors = b""
        self._awaited = b""
        self._waiter: asyncio.Future[bytes] | None = None
        self._searching = False
        self._gone = False
        self._ending = "the program says no more"
        self._ended = asyncio.Event()
        self._exited = asyncio.Event()

    @classmethod
    async def start(cls, command: Sequence[str], directory: str | None = None) -> UciClient:
        """Start a program. Raises OSError if that fails."""
        loop = asyncio.get_running_loop()
        _, client = await loop.subprocess_exec(cls, *command, cwd=directory, **group_of_its_own())
        return client

    @property
    def alive(self) -> bool:
        return not self._gone

    @property
    def pid(self) -> int | None:
        """Process id; None if it has ended."""
        return None if self._gone or self._transport is None else self._transport.get_pid()

    async def initialise(self) -> None:
        """Wait for `uciok` and read the name and the options. Raises ProgramGoneError."""
        self.learn((await self.ask("uci\n", b"uciok")).decode("utf-8", "replace").splitlines())

    def learn(self, lines: Sequence[str]) -> None:
        """Take the name and the options from the lines before `uciok`."""
        for line in lines:
            if line.startswith("id name "):
                self.name = line.removeprefix("id name ").strip()
            option = parse_option(line)
            if option is not None:
                self.options[option.name.lower()] = option

    def configure(self, values: Mapping[str, str | int | bool | None]) -> None:
        """Set options. Raises UciError for an unknown option or an invalid value."""
        for name, value in values.items():
            option = self.options.get(name.lower())
            if option is None:
                known = ", ".join(sorted(each.name for each in self.options.values())) or "none"
                raise UciError(f"it has no option {name}; it has: {known}")
            if option.kind == "button":
                self._write(f"setoption name {option.name}\n")
            else:
                self._write(f"setoption name {option.name} value {option.text(value)}\n")

    async def ping(self) -> None:
        """Wait until it has handled all commands. Raises ProgramGoneError."""
        await self.ask("isready\n", b"readyok")

    async def new_game(self) -> None:
        """Send `ucinewgame` and wait until it is ready. A search that was not awaited is stopped before.
        Raises ProgramGoneError."""
        if self._searching:
            await self.stop()
        await self.ask("ucinewgame\nisready\n", b"readyok")

    async def search(self, position: str, go: str) -> UciAnswer:
        """Request a move. position, go: UCI commands without line ends. After a cancellation, `stop` or
        `new_game` must be called. Raises ProgramGoneError."""
        return parse_answer(await self.search_output(position, go))

    async def search_output(self, position: str, go: str) -> bytes:
        """Same as `search`, but return the program's whole output, up to and including `bestmove`."""
        self._searching = True
        del self._pending[: self._pending.rfind(b"\n") + 1]  # Discard unrequested output.
        self.went_at = perf_counter()
        lines = await self.ask(f"{position}\n{go}\n", b"bestmove")
        self._searching = False
        return lines

    def begin_pondering(self, position: str, go: str) -> None:
        """Let it think about a position that its opponent may bring about. `ponder_hit`, `stop` or `new_game`
        must follow. Raises ProgramGoneError."""
        self._searching = True
        del self._pending[: self._pending.rfind(b"\n") + 1]
        self._write(f"{position}\n{go}\n")

    async def ponder_hit(self) -> UciAnswer:
        """Tell it that the position has come about, and wait for its move. Raises ProgramGoneError."""
        lines = await self.ask("ponderhit\n", b"bestmove")
        self._searching = False
        return parse_answer(lines)

    async def stop(self) -> None:
        """Stop a search whose answer was not awaited, and wait for it. Raises ProgramGoneError."""
        await self.ask("stop\n", b"bestmove")
        self._searching = False

    async def close(self) -> None:
        """Send `quit`, and kill it if it has not ended after QUIT_SECONDS."""
        with contextlib.suppress(UciError, TimeoutError):
            self._write("quit\n")
            async with asyncio.timeout(QUIT_SECONDS):
                await self._ended.wait()
        self.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIT_SECONDS):
                await self._exited.wait()

    def kill(self) -> None:
        """Kill it and its child processes. Idempotent."""
        self._note_end()
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if transport.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill_group(transport.get_pid())
        # Do not close the transport: that would wait for the process, and asyncio warns about it. It closes
        # by itself at the end of the process.
        for descriptor in range(3):
            pipe = transport.get_pipe_transport(descriptor)
            if pipe is not None:
                pipe.close()

    # -- lines in and out ------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        if self._gone or self._input is None:
            raise ProgramGoneError(self._ending)
        self._input.write(text.encode())

    async def ask(self, text: str, answer: bytes) -> bytes:
        """Write, wait for a line that begins with `answer`, and return all lines up to it, inclusive. Raises
        ProgramGoneError."""
        if self._gone:
            raise ProgramGoneError(self._ending)
        self._awaited = answer
        self._waiter = asyncio.get_running_loop().create_future()
        self._take_lines()
        self._write(text)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def _take_lines(self) -> None:
        """Pass the lines up to the awaited one to the waiter, if it has arrived."""
        waiter, pending, awaited = self._waiter, self._pending, self._awaited
        if waiter is None or waiter.done():
            return
        start = 0 if pending.startswith(awaited) else pending.find(b"\n" + awaited) + 1
        while start or pending.startswith(awaited):
            end = pending.find(b"\n", start)
            if end < 0:
                return
            word_end = start + len(awaited)
            if end == word_end or pending[word_end : word_end + 1].isspace():
                self.answered_at = perf_counter()
                lines = bytes(pending[: end + 1])
                del pending[: end + 1]
                waiter.set_result(lines)
                return
            found = pending.find(b"\n" + awaited, end)
            if found < 0:
                return
            start = found + 1

    # -- called by asyncio -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        pipe = transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        self._input = pipe

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._pending += data
            self._take_lines()
            if len(self._pending) > MAX_PENDING_BYTES:
                del self._pending[: -MAX_PENDING_BYTES // 2]
        else:
            lines = (self._errors + data).split(b"\n")
            self._errors = lines.pop()[-200:]
            self.last_words.extend(_printable(line[:200]) for line in lines)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            asyncio.get_running_loop().call_later(CLOSED_SECONDS, self._note_end)

    def process_exited(self) -> None:
        self._exited.set()
        asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, self._note_end)

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_end()

    def _note_end(self) -> None:
        self._gone = True
        self._ended.set()
        if self._errors:
            self.last_words.append(_printable(self._errors))
            self._errors = b""
        status = self._transport.get_returncode() if self._transport is not None else None
        if status is not None:
            self._ending = f"the program {how_it_ended(status)}"
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ProgramGoneError(self._ending))


def parse_option(line: str) -> UciOption | None:
    """Return the option in a line; None if it has none."""
    words = line.split()
    if len(words) < 2 or words[0] != "option":
        return None
    parts: dict[str, list[str]] = {}
    choices: list[list[str]] = []
    part: list[str] = []
    for word in words[1:]:
        if word == "var" and "type" in parts:
            part = []
            choices.append(part)
        elif word in ("name", "type", "default", "min", "max") and word not in parts:
            part = parts.setdefault(word, [])
        else:
            part.append(word)
    name, kind = " ".join(parts.get("name", ())), " ".join(parts.get("type", ()))
    if not name or not kind:
        return None
    return UciOption(
        name,
        kind,
        _whole(" ".join(parts.get("min", ()))),
        _whole(" ".join(parts.get("max", ()))),
        tuple(" ".join(choice) for choice in choices),
    )


def parse_answer(lines: bytes) -> UciAnswer:
    """Return the result in the lines of a search. The last line is `bestmove`."""
    *_, last = lines.rstrip(b"\r\n").rsplit(b"\n", 1)
    words = _printable(last).split()
    move = words[1] if len(words) > 1 and words[1] not in ("(none)", "NULL") else None
    ponder = words[3] if len(words) > 3 and words[2] == "ponder" else None
    bound: bytes | None = None
    end = len(lines) - len(last)
    while (at := lines.rfind(b" score ", 0, end)) >= 0:
        begin = lines.rfind(b"\n", 0, at) + 1
        line = lines[begin : max(at, lines.find(b"\n", at))]
        end = begin
        if not line.startswith(b"info ") or (b" multipv " in line and b" multipv 1 " not in line):
            continue
        if b" lowerbound" in line or b" upperbound" in line:
            # Only a bound of the score: prefer an earlier exact one.
            bound = bound or line
            continue
        return _with_info(move, ponder, line)
    return UciAnswer(move, ponder=ponder) if bound is None else _with_info(move, ponder, bound)


def _with_info(move: str | None, ponder: str | None, line: bytes) -> UciAnswer:
    values: dict[str, int | None] = {}
    words = iter(line.decode("utf-8", "replace").split())
    for word in words:
        if word in ("pv", "string"):
            break
        if word in ("cp", "mate", "depth", "seldepth", "nodes") and word not in values:
            values[word] = _whole(next(words, ""))
    mate = values.get("mate")
    return UciAnswer(
        move,
        score_cp=values.get("cp") if mate is None else None,
        mate=mate,
        depth=values.get("depth"),
        selective_depth=values.get("seldepth"),
        nodes=values.get("nodes"),
        ponder=ponder,
    )


def _printable(line: bytes) -> str:
    """Return a line without control characters, for terminals and files."""
    return printable(line.decode("utf-8", "replace").replace("\t", " ").rstrip())


def _whole(text: str) -> int | None:
    """Return the number in a program's output; None if it is invalid or exceeds 64 bits."""
    try:
        value = int(text)
    except ValueError:
        return None
    return value if abs(value) < 1 << 63 else None

# SPDX-License-Identifier: GPL-3.0-or-later
"""UCI text to plain data: lines out of a byte stream, the arguments of `position`, `go` and `setoption`."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from engine.search.limits import Clock, Limits
from protocol.host.printing import printable

MAX_LINE_BYTES = 8 << 20
"""Longest line taken. A game of ten thousand moves is 60 kB; what is longer than this is not UCI."""


class CommandError(ValueError):
    """A command that cannot be understood. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class PositionCommand:
    """`position`: a FEN (None is the initial position) and the moves from there, unchecked."""

    fen: str | None
    moves: tuple[str, ...]


def shown(text: str, limit: int = 80) -> str:
    """A text from outside, fit for one line of output: no control characters, not too long."""
    clean = printable(text[: limit + 1])
    return clean if len(text) <= limit else clean[:limit] + "…"


def parse_command(line: str, known: Container[str]) -> tuple[str, list[str]]:
    """The command of a line, in small letters, and its arguments; "" if there is none.

    Words before the first that is known are ignored, as the protocol demands (`joho debug on`). If none
    is known, the first is the command.
    """
    words = line.split()
    for number, word in enumerate(words):
        if word.lower() in known:
            return word.lower(), words[number + 1 :]
    return (words[0], words[1:]) if words else ("", [])


def parse_position(arguments: list[str]) -> PositionCommand:
    """The words after `position`. Raises CommandError."""
    if not arguments:
        raise CommandError("position needs startpos or fen")
    kind, rest = arguments[0].lower(), arguments[1:]
    split = next((i for i, word in enumerate(rest) if word.lower() == "moves"), len(rest))
    before = rest[:split]
    moves = tuple(move.lower() for move in rest[split + 1 :])  # some GUIs write promotions as a7a8Q
    if kind == "startpos":
        if before:
            raise CommandError(f"position startpos: expected 'moves', not {shown(before[0])!r}")
        return PositionCommand(None, moves)
    if kind == "fen":
        if not before:
            raise CommandError("position fen: the FEN is missing")
        return PositionCommand(" ".join(before), moves)
    raise CommandError(f"position needs startpos or fen, not {shown(arguments[0])!r}")


def parse_setoption(arguments: list[str]) -> tuple[str, str]:
    """The words after `setoption` as name and value; both may contain spaces. Raises CommandError.

    Quotes around the whole value, with which file managers and shells copy paths, are taken off.
    """
    if not arguments or arguments[0].lower() != "name":
        raise CommandError("setoption needs 'name'")
    words = arguments[1:]
    split = next((i for i, word in enumerate(words) if word.lower() == "value"), len(words))
    name = " ".join(words[:split])
    if not name:
        raise CommandError("setoption: the name is missing")
    value = " ".join(words[split + 1 :])
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name, value


_NUMBERS = {
    "wtime": -(10**12),
    "btime": -(10**12),
    "winc": 0,
    "binc": 0,
    "movestogo": 0,
    "movetime": 0,
    "nodes": 1,
    "depth": 1,
    "mate": 1,
}
"""The numeric arguments of `go` with the least value that makes sense; a clock may have run below zero."""

_FLAGS = ("infinite", "ponder")

UNCLEAR_MS = 500
"""Time for a move when `go` names a limit, but none that can be understood."""


def parse_go(arguments: list[str]) -> tuple[Limits, list[str]]:
    """The words after `go` as limits, and what was wrong with them: a bad argument is left out and the rest
    counts, because a search that never starts would lose the game. So would one that never ends: if nothing
    is left to end it, UNCLEAR_MS do."""
    numbers: dict[str, int] = {}
    flags: set[str] = set()
    search_moves: list[str] = []
    complaints: list[str] = []
    at = 0
    while at < len(arguments):
        word = arguments[at].lower()
        at += 1
        if word in _FLAGS:
            flags.add(word)
        elif word == "searchmoves":
            while at < len(arguments) and arguments[at].lower() not in (*_NUMBERS, *_FLAGS, "searchmoves"):
                search_moves.append(arguments[at].lower())
                at += 1
        elif word in _NUMBERS:
            text = arguments[at] if at < len(arguments) else ""
            try:
                number = int(text)
            except ValueError:
                complaints.append(f"go {word} needs a whole number, not {shown(text)!r}")
                if text and text.lower() not in (*_NUMBERS, *_FLAGS, "searchmoves"):
                    at += 1
                continue
            at += 1
            if number < _NUMBERS[word]:
                complaints.append(f"go {word} {number} makes no sense and is ignored")
            elif word in numbers and numbers[word] != number:
                complaints.append(f"go {word} {number} is ignored: it was {numbers[word]} before")
            else:
                numbers[word] = min(number, 10**12)
        else:
            complaints.append(f"go does not know {shown(word)!r}")
    clock = None
    if "wtime" in numbers or "btime" in numbers:
        clock = Clock(
            white_ms=numbers.get("wtime"),
            black_ms=numbers.get("btime"),
            white_increment_ms=numbers.get("winc", 0),
            black_increment_ms=numbers.get("binc", 0),
            moves_to_go=numbers.get("movestogo") or None,
        )
    elif {"winc", "binc", "movestogo"} & numbers.keys():
        complaints.append("go needs wtime and btime besides increments and movestogo")
    limits = Limits(
        clock=clock,
        movetime_ms=numbers.get("movetime"),
        nodes=numbers.get("nodes"),
        depth=numbers.get("depth"),
        mate=numbers.get("mate"),
        infinite="infinite" in flags,
        ponder="ponder" in flags,
        search_moves=tuple(search_moves),
    )
    if limits.infinite and numbers:
        complaints.append(f"go infinite ends with stop alone: {', '.join(numbers)} ignored")
    if complaints and limits.unbounded and not limits.infinite:
        complaints.append(f"nothing says how long to search: {UNCLEAR_MS} ms")
        limits = replace(limits, movetime_ms=UNCLEAR_MS)
    return limits, complaints


def complete_clock(limits: Limits, turn: str) -> tuple[Limits, list[str]]:
    """Limits whose clock, if there is one, is known for the side to move ("white" or "black"), and what had
    to be assumed: that it is as the opponent's."""
    clock = limits.clock
    if clock is None or clock.of(turn) is not None:
        return limits, []
    if turn == "white":
        clock = replace(clock, white_ms=clock.black_ms)
    else:
        clock = replace(clock, black_ms=clock.white_ms)
    missing = "wtime" if turn == "white" else "btime"
    return replace(limits, clock=clock), [f"go without {missing}: {turn}'s clock is taken to be the other's"]


def read_lines(descriptor: int) -> Iterator[str | CommandError]:
    """Lines of a byte stream until its end, without line ends (LF, CRLF or CR), never empty.

    Reads the descriptor itself: a thread that waits inside `sys.stdin` would stop the interpreter's exit.
    Bytes that are not UTF-8 are replaced. A line longer than MAX_LINE_BYTES comes as a CommandError.
    """
    buffer = bytearray()
    overlong = False
    while True:
        try:
            chunk = os.read(descriptor, 1 << 16)
        except OSError:  # The terminal has gone.
            chunk = b""
        *complete, rest = chunk.replace(b"\r", b"\n").split(b"\n") if chunk else (b"", b"")
        for piece in complete:
            buffer += piece
            if overlong:
                overlong = False
                yield CommandError(f"a line of more than {MAX_LINE_BYTES} bytes was ignored")
            elif text := buffer.decode("utf-8", "replace").strip():
                yield text
            buffer.clear()
        if not chunk:
            return
        buffer += rest
        if len(buffer) > MAX_LINE_BYTES:
            overlong = True
            buffer.clear()

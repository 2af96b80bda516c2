# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsing of UCI: lines of a byte stream, and the arguments of `position`, `go` and `setoption`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal

from engine.search.limits import DEFAULT_MS, Clock, Limits
from protocol.common.printing import printable

GUI_ENCODING = "mbcs" if sys.platform == "win32" else "utf-8"
"""Encoding of lines that are not UTF-8: the code page of Windows, in which GUIs send paths there."""

MAX_LINE_BYTES = 8 << 20
"""Longest accepted line. A game of ten thousand moves has 60 kB."""


class CommandError(ValueError):
    """A command is invalid. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class PositionCommand:
    """`position`: a FEN (None is the initial position) and the moves from there, unchecked."""

    fen: str | None
    moves: tuple[str, ...]


def shown(text: str, limit: int = 80) -> str:
    """Return an untrusted text for one line of output: without control characters, shortened to `limit`."""
    clean = printable(text[: limit + 1])
    return clean if len(text) <= limit else clean[:limit] + "…"


def parse_command(line: str, known: Container[str]) -> tuple[str, list[str]]:
    """Return a line's command, in lower case, and its arguments; "" if there is none.

    Words before the first known command are ignored, as the protocol requires (`joho debug on`). If none is
    known, the first word is the command.
    """
    words = line.split()
    for number, word in enumerate(words):
        if word.lower() in known:
            return word.lower(), words[number + 1 :]
    return (words[0], words[1:]) if words else ("", [])


def parse_position(arguments: list[str]) -> PositionCommand:
    """Parse the words after `position`. Raises CommandError."""
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
    """Return name and value from the words after `setoption`; both may contain spaces. Raises CommandError.

    Quotes around the whole value are removed: file managers and shells copy paths with quotes.
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
"""Numeric arguments of `go` and their minimum values. A clock may be below zero."""

_FLAGS = ("infinite", "ponder")

_MOST = 10**12
"""Larger numbers count as this."""

_LEADING_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?(?:e[+-]?[0-9]{1,6})?", re.IGNORECASE)


def whole_number(text: str) -> int | None:
    """Return the largest whole number that is not above the number at the start of a text, such as 280 for
    "280.5", "2.8e2" and "280ms"; None if the text does not start with a number. Limited to 10^12."""
    found = _LEADING_NUMBER.match(text)
    if found is None:
        return None
    number = Decimal(found.group().replace(",", "."))
    if number and number.adjusted() >= 12:
        return _MOST if number > 0 else -_MOST
    return int(number.to_integral_value(ROUND_FLOOR))


def parse_go(arguments: list[str]) -> tuple[Limits, list[str]]:
    """Return limits from the words after `go`, and the errors.

    A search that never starts loses the game, so invalid arguments are ignored, and `whole_number` reads
    other numbers. DEFAULT_MS limits a search without a valid limit, or whose limit of time is unreadable.
    """
    numbers, flags, search_moves, complaints, unreadable = _read_go(arguments)
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
    timeless = clock is None and limits.movetime_ms is None and unreadable & {"wtime", "btime", "movetime"}
    if not limits.infinite and (timeless or (complaints and limits.unbounded)):
        complaints.append(f"nothing says how long to search: {DEFAULT_MS} ms")
        limits = replace(limits, movetime_ms=DEFAULT_MS)
    return limits, complaints


def _read_go(arguments: list[str]) -> tuple[dict[str, int], set[str], list[str], list[str], set[str]]:
    """Return the numbers, flags, moves and errors of `go`, and the names of unreadable numbers."""
    numbers: dict[str, int] = {}
    flags, unreadable = set[str](), set[str]()
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
            number = whole_number(text)
            if number is None:
                complaints.append(f"go {word} needs a whole number, not {shown(text)!r}")
                unreadable.add(word)
                if text and text.lower() not in (*_NUMBERS, *_FLAGS, "searchmoves"):
                    at += 1
                continue
            at += 1
            if not re.fullmatch(r"[+-]?[0-9]+", text):
                number = max(number, _NUMBERS[word])
                complaints.append(f"go {word} needs a whole number, not {shown(text)!r}: {number} is used")
            if number < _NUMBERS[word]:
                complaints.append(f"go {word} {number} makes no sense and is ignored")
            elif word in numbers and numbers[word] != number:
                complaints.append(f"go {word} {number} is ignored: it was {numbers[word]} before")
            else:
                numbers[word] = number
        else:
            complaints.append(f"go does not know {shown(word)!r}")
    return numbers, flags, search_moves, complaints, unreadable


def complete_clock(limits: Limits, turn: str) -> tuple[Limits, list[str]]:
    """Return limits with a clock for the side to move ("white" or "black"), if there is any clock, and the
    assumption that was needed: the opponent's clock, but at most DEFAULT_MS for the move."""
    clock = limits.clock
    if clock is None or clock.of(turn) is not None:
        return limits, []
    missing = "wtime" if turn == "white" else "btime"
    movetime_ms = DEFAULT_MS if limits.movetime_ms is None else min(limits.movetime_ms, DEFAULT_MS)
    complaint = f"go without {missing}: the other clock is used, and at most {movetime_ms} ms"
    return replace(limits, clock=clock.completed(turn), movetime_ms=movetime_ms), [complaint]


def read_lines(descriptor: int) -> Iterator[str | CommandError]:
    """Yield the lines of a byte stream, without line ends (LF, CRLF or CR), never empty.

    Reads the descriptor directly: a thread blocked in `sys.stdin` would prevent the interpreter's exit.
    Byte order marks are removed. A line of invalid UTF-8 has GUI_ENCODING. For a line longer than
    MAX_LINE_BYTES it yields a CommandError.
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
            elif text := _decoded(buffer).replace("\ufeff", "").strip():
                yield text
            buffer.clear()
        if not chunk:
            return
        buffer += rest
        if len(buffer) > MAX_LINE_BYTES:
            overlong = True
            buffer.clear()


def _decoded(line: bytearray) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode(GUI_ENCODING, "replace")

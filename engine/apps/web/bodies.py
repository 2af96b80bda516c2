# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON of requests and answers. Python's coder stops all threads, so that large texts are coded in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from protocol.common.http.middleware import HttpError
from protocol.common.settings.spec import shown

PIECE = 1 << 12
"""Characters of a text that is decoded at once."""

MOST_OF_ELEMENT = 1 << 18
"""Maximum characters of a list's element."""

_SPACE = re.compile(r"[ \t\n\r]*")


def _no_number(name: str) -> NoReturn:
    raise HttpError(400, f"the body is not JSON: {name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def read_object(body: bytes, most_elements: int) -> dict[str, Any]:
    """Return the JSON object of a body. most_elements: of each of its lists. Raises HttpError."""
    try:
        text = body.decode()
        found = _Pieces(text, most_elements).object() if text.startswith("{") else _DECODER.decode(text)
    except (ValueError, IndexError, RecursionError):
        raise HttpError(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise HttpError(422, f"the body is a JSON object, not {shown(found)}")
    return found


def written(value: Any, depth: int = 3) -> bytes:
    """Encode a value. depth: of objects and lists whose elements are encoded one at a time."""
    return "".join(_parts(value, depth)).encode()


def _parts(value: Any, depth: int) -> Iterator[str]:
    if not depth or not value or not isinstance(value, dict | list):
        yield json.dumps(value, separators=(",", ":"), allow_nan=False)
        return
    begin, end = "{}" if isinstance(value, dict) else "[]"
    for each in value:
        yield begin
        begin = ","
        if isinstance(value, dict):
            yield f"{json.dumps(str(each))}:"
        yield from _parts(value[each] if isinstance(value, dict) else each, depth - 1)
    yield end


class _Pieces:
    """Decodes an object and its lists element by element."""

    def __init__(self, text: str, most: int) -> None:
        self._text, self._at, self._most = text, 0, most

    def object(self) -> dict[str, Any]:
        found = {}
        for _ in self._elements("{}"):
            name = self._value()
            if not isinstance(name, str):
                raise ValueError(name)
            self._expect(":")
            found[name] = self._list() if self._next() == "[" else self._value()
        if self._next():
            raise ValueError(self._at)
        return found

    def _list(self) -> list[Any]:
        return [self._value() for _ in self._elements("[]")]

    def _elements(self, brackets: str) -> Iterator[None]:
        """Yield before each element."""
        self._expect(brackets[0])
        left = self._most
        if self._next() != brackets[1]:
            yield
            while self._next() == ",":
                self._at += 1
                left -= 1
                if left <= 0:
                    raise HttpError(
                        413, f"a list or object of the body has more than {self._most:,} elements"
                    )
                yield
        self._expect(brackets[1])

    def _value(self) -> Any:
        self._next()
        size = PIECE
        while True:
            piece = self._text[self._at : self._at + size]
            is_rest = self._at + size >= len(self._text)
            try:
                value, length = _DECODER.raw_decode(piece)
                if is_rest or length < size:  # Otherwise a number may go on.
                    break
            except ValueError:
                if is_rest:
                    raise
            if size >= MOST_OF_ELEMENT and not piece.startswith('"'):
                raise HttpError(413, f"an element of the body is longer than {MOST_OF_ELEMENT:,} characters")
            size *= 8
        self._at += length
        return value

    def _next(self) -> str:
        """Skip white space. Return the next character, or "" at the end."""
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise ValueError(self._at)
        self._at += 1

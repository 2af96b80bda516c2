# SPDX-License-Identifier: GPL-3.0-or-later
"""A FEN on the command line without quotes around its spaces."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FIELDS = tuple(map(re.compile, (r"[wb]", r"[A-Ha-hKQkq]{1,4}|-", r"[a-h][36]|-", r"\d+", r"\d+")))
"""Fields after the board: side to move, castling, en passant, and two optional counters."""


def with_whole_fens(words: Sequence[str]) -> list[str]:
    """Join the fields of a FEN after `--fen` to one word of the command line, as quotes would.

    A FEN has both counters or none: a single number after the fields is not a counter.
    """
    whole: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if whole and whole[-1] == "--fen" and "/" in word and " " not in word:
            fields = _fields(rest)
            word = " ".join([word, *rest[:fields]])
            del rest[:fields]
        whole.append(word)
    return whole


def _fields(words: Sequence[str]) -> int:
    """Return how many words are fields after a board: 0, 3 or 5."""
    matching = 0
    while matching < min(len(words), len(_FIELDS)) and _FIELDS[matching].fullmatch(words[matching]):
        matching += 1
    return {3: 3, 4: 3, 5: 5}.get(matching, 0)

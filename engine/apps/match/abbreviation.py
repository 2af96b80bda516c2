# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of players in a narrow table: shorter, but as different as they were."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

MARK = "…"


def abbreviated(names: Sequence[str], width: int) -> list[str]:
    """Return the names with at most `width` characters each, cut where they do not differ.

    Cuts the end if all differences are before it, otherwise the common beginning and then the end, otherwise
    the beginning or the middle. If names are still equal, numbers them.
    """
    if max(map(len, names)) <= width:
        return list(names)
    kept = width - len(MARK)
    word, differ, end = _difference(names)
    word = min(word, max(map(len, names)) - kept)  # with as much before the difference as fits
    for start in (0, word, differ) if end <= kept else (word, differ):
        parts = [MARK * (start > 0) + name[start:] for name in names]
        short = [_cut(part, width, kept, 0) for part in parts]
        if len(set(short)) == len(set(names)):
            return short
    for first, last in ((0, kept), *((kept - last, last) for last in range(1, kept))):
        short = [_cut(name, width, first, last) for name in names]
        if len(set(short)) == len(set(names)):
            return short
    numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(names), 1)}
    return [_cut(f"{numbers[name]} {name}", width, kept, 0) for name in names]


def telling_width(names: Sequence[str]) -> int:
    """Return the width that shows the differences of names with a common beginning; 0 without one."""
    word, _, end = _difference(names)
    return end - word + 2 * len(MARK) if word else 0


def _difference(names: Sequence[str]) -> tuple[int, int, int]:
    """Return where the names begin to differ, as the start of a word and as a character, and where the last
    difference ends."""
    differ = _common(names)
    ending = _common([name[differ:][::-1] for name in names])
    word = len(re.sub(r"[^\s=_-]*$", "", names[0][:differ]))
    return word, differ, max(map(len, names)) - ending


def _common(names: Sequence[str]) -> int:
    """Return the length of the names' common beginning."""
    return sum(1 for _ in takewhile(lambda column: len({*column}) == 1, zip(*names, strict=False)))


def _cut(name: str, width: int, first: int, last: int) -> str:
    return name if len(name) <= width else name[:first] + MARK + name[len(name) - last :]

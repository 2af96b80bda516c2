# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of players in a narrow table: shorter, but as different as they were."""

from __future__ import annotations

from collections.abc import Sequence

MARK = "…"


def abbreviated(names: Sequence[str], width: int) -> list[str]:
    """Return the names with at most `width` characters each, cut where they do not differ.

    Cuts the end, otherwise the beginning, otherwise the middle; if names are still equal, numbers them.
    """
    kept = width - len(MARK)
    ways = [(kept, 0), (0, kept), *((kept - last, last) for last in range(1, kept))]
    for first, last in ways:
        short = [_cut(name, width, first, last) for name in names]
        if len(set(short)) == len(set(names)):
            return short
    numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(names), 1)}
    return [_cut(f"{numbers[name]} {name}", width, kept, 0) for name in names]


def _cut(name: str, width: int, first: int, last: int) -> str:
    return name if len(name) <= width else name[:first] + MARK + name[len(name) - last :]

# SPDX-License-Identifier: GPL-3.0-or-later
"""The option Contempt in lc0's syntax: Elo for all opponents or by name.

    50                  Stockfish=0,Weak Engine=150,30

It is imported before `uciok`, so it must import quickly.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite

from protocol.common.settings.spec import SettingsError, shown


@lru_cache(maxsize=16)
def parse_contempt(text: str) -> tuple[tuple[str, float], ...]:
    """Return pairs of a part of an opponent's name (empty: any) and Elo. Raises SettingsError."""
    entries = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.rpartition("=")
        try:
            elo = float(value)
        except ValueError:
            elo = float("nan")
        if not isfinite(elo):
            raise SettingsError(f"entries are Elo or NAME=Elo, not {shown(entry)}")
        entries.append((name.strip(), elo))
    return tuple(entries)

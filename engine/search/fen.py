# SPDX-License-Identifier: GPL-3.0-or-later
"""FENs as users pass them."""

from __future__ import annotations

from engine._core import Game


def read_fen(
    fen: str, chess960: bool = False, *, allow_opponent_check: bool = False
) -> tuple[Game, list[str]]:
    """Return the game of a FEN and its corrections, same as `Game.read`. Tabs and ends of lines count as
    blanks between fields. Raises ValueError."""
    return Game.read(" ".join(fen.split()), chess960, allow_opponent_check=allow_opponent_check)

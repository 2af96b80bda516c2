# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a query with one value each: names, types, ranges and defaults.

This table defines the parser, the JSON Schema and the error messages. Fields with several values (turns,
priorities, moves to avoid, options) are in query.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.common.settings.spec import SettingsGroup, setting

MOST_NODES = 4_000_000_000
MOST_MILLISECONDS = 10**12


@dataclass(frozen=True, slots=True)
class QueryFields(SettingsGroup):
    """Values of these fields. A limit of 0 means no limit, but `nodes` 0 means no search."""

    noun = "field"

    fen: str = setting("startpos", "position that the game starts from: a FEN, or startpos")
    moves: tuple[str, ...] = setting((), "moves of the game from there, in UCI notation")
    chess960: bool = setting(False, "whether castling is written king takes rook")

    nodes: int = setting(
        0, "limit: visits of the position; 0: no search, the network's output alone", high=MOST_NODES
    )
    movetime: int = setting(0, "limit: milliseconds", high=MOST_MILLISECONDS)
    depth: int = setting(0, "limit: mean depth of the tree's leaves, in plies", high=1000)
    mate: int = setting(0, "limit: first look for a mate in at most this many moves", high=1000)
    infinite: bool = setting(False, "search until `terminate` or the end of input, whatever the limits")

    keep_tree: bool = setting(
        False, "continue the tree of this client's last search, whose nodes the position may be one of"
    )
    network: str = setting(
        "", "name or content hash of one of the evaluator's networks; empty is that of the option WeightsFile"
    )
    priority: int = setting(
        0,
        "positions of a higher priority are begun first; of equal ones, those asked for first",
        low=-(10**9),
        high=10**9,
    )
    report_every: float = setting(
        0.0, "seconds between answers while the search goes on; 0 answers at its end only", high=10**6
    )

    multipv: int = setting(1, "best moves that an answer holds", low=1, high=500)
    pv_length: int = setting(0, "longest line that an answer holds, in plies; 0 is any", high=1000)
    point_of_view: str = setting(
        "side_to_move", "whose results an answer holds", choices=("side_to_move", "white", "black")
    )
    include_policy: bool = setting(False, "answer with the network's probability of each legal move")
    include_san: bool = setting(False, "answer with each line in SAN, too")
    include_pv_visits: bool = setting(False, "answer with the visits of each move of a line")
    include_statistics: bool = setting(False, "answer with what the search knows of each root move")

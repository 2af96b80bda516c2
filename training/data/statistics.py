# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics of shards."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from engine.apps.shards import NO_SHARE, Shard, moves_of_samples
from training.targets import MATE_CP

RESULTS = ("black_won", "white_won", "draw", "unknown")


class Statistics:
    """Statistics of all added shards."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, shard: Shard, size: int) -> None:
        """Add a shard. size: bytes of its file."""
        columns, counts = shard.columns, self._counts
        counts["shards"] += 1
        counts["bytes"] += size
        counts["games"] += shard.games
        counts["positions"] += shard.positions
        counts["branches"] += shard.branches
        counts["annotated"] += (shard.positions + shard.branches) if shard.annotated_by else 0
        counts["plies"] += int(columns["plies"].sum(dtype=np.int64))
        for number, name in enumerate(RESULTS):
            counts[name] += int((columns["results"] == number).sum())
        if shard.kind == "search":
            counts["searched"] += shard.positions
            counts["visited"] += int((columns["policy"] != NO_SHARE).sum())
            return
        counts["labelled"] += shard.positions
        counts["best_played"] += int((columns["best"] == moves_of_samples(columns)).sum())
        counts["first_line"] += int((columns["best"] == columns["lines"][0]).sum())
        score = np.abs(columns["best_cp"].astype(np.int32))
        counts["beyond_600"] += int((score > 600).sum())
        counts["mates"] += int((score > MATE_CP).sum())

    def data(self) -> dict[str, Any]:
        """Return the statistics as JSON data; shares refer to labelled positions along games."""
        counts = self._counts
        labelled, searched = max(1, counts["labelled"]), max(1, counts["searched"])
        whole = ("shards", "bytes", "games", "positions", "branches", "labelled", "searched", "annotated")
        return {
            **{name: counts[name] for name in whole},
            "results": {name: counts[name] for name in RESULTS},
            "mean_plies": counts["plies"] / max(1, counts["games"]),
            "best_played": counts["best_played"] / labelled,
            "best_is_first_line": counts["first_line"] / labelled,
            "beyond_600": counts["beyond_600"] / labelled,
            "mates": counts["mates"] / labelled,
            "visited_moves": counts["visited"] / searched,
        }

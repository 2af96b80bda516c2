# SPDX-License-Identifier: GPL-3.0-or-later
"""Games of earlier ladders, which join the fit. Players of the same name are one player."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.strength.ladder.scale import OpeningResult

POINTS = {"1-0": 1.0, "0-1": 0.0, "1/2-1/2": 0.5}


@dataclass(frozen=True, slots=True)
class Opening:
    """Result of one opening between two players, by name. points: of `first`. games: 1 or 2."""

    first: str
    second: str
    points: float
    games: int


@dataclass(frozen=True, slots=True)
class EarlierLadder:
    """A ladder's games. players: as its report describes them, by name. runs: as in its report."""

    players: Mapping[str, Mapping[str, Any]]
    openings: Sequence[Opening]
    runs: Sequence[Mapping[str, Any]]


def read_earlier(folder: Path) -> EarlierLadder:
    """Read ladder.json and ladder.jsonl of a folder. Raises ValueError if they are missing or damaged."""
    try:
        report = json.loads((folder / "ladder.json").read_text("utf-8"))
        header, *games = (folder / "ladder.jsonl").read_text("utf-8").splitlines()
        names = [str(player["name"]) for player in json.loads(header)["identity"]["players"]]
        openings: dict[int, Opening] = {}
        for line in games:
            game = json.loads(line)
            white, black, points = names[game["white"]], names[game["black"]], POINTS[game["result"]]
            first, second = sorted((white, black))
            before = openings.get(game["pair"], Opening(first, second, 0.0, 0))
            own = points if white == first else 1 - points
            openings[game["pair"]] = Opening(first, second, before.points + own, before.games + 1)
        players = {str(player["name"]): player for player in report["players"]}
        runs = (*report.get("earlier_runs", ()), *report["runs"])
        return EarlierLadder(players, tuple(openings.values()), runs)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(
            f"--earlier: {folder} holds no ladder's ladder.json and ladder.jsonl: {error}"
        ) from None


def joined(
    names: Sequence[str], openings: Sequence[OpeningResult], earlier: Sequence[EarlierLadder]
) -> tuple[list[str], list[OpeningResult]]:
    """Return all names, these first, and all openings with their numbers. openings: of these names."""
    every = list(dict.fromkeys([*names, *(name for each in earlier for name in each.players)]))
    number = {name: index for index, name in enumerate(every)}
    results = list(openings)
    for opening in (opening for each in earlier for opening in each.openings):
        first, second, points = number[opening.first], number[opening.second], opening.points
        if first > second:
            first, second, points = second, first, opening.games - points
        results.append(OpeningResult(first, second, points, opening.games))
    return every, results

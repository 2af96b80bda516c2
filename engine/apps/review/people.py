# SPDX-License-Identifier: GPL-3.0-or-later
"""What people of a rating play: by networks that imitate them, or by the flattened policy of another."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine._core import Game
from engine.apps.analysis.evaluation import outputs
from engine.options import Options
from engine.search.pool import SearchPool
from engine.search.strength.levels import NETWORK

UNRATED = 1500
"""Rating of players without one in the game's tags."""

LEAST_RATING, MOST_RATING = 1100, 1900
"""Ratings for which the policy of NETWORK was fitted. Other players are counted to the nearest one."""

WARMTH, WARMTH_PER_POINT = 2.0, -0.001
"""Temperature of the policy for UNRATED, and its change with the rating: fitted to the policies of maia-1100,
maia-1500 and maia-1900 on 500 moves that lose 10 % by the judge (benchmarks/RESULTS.md, Reviews)."""

ESTIMATE_ERROR = 0.15
"""Mean error of the share of a marked or best move then."""

EASY, HARD = 0.5, 0.15
"""Share of people that find the best move, from which it is easy, and below which it is hard."""


@dataclass(frozen=True, slots=True)
class People:
    """Shares of the people of a rating who play a move, and who find the best one."""

    rating: int
    plays: float
    finds: float

    @property
    def hardness(self) -> str:
        return "easy to find" if self.finds >= EASY else "hard to find" if self.finds < HARD else ""

    @property
    def careless(self) -> bool:
        """True if few play the move, and most find the best one."""
        return self.plays < HARD and self.finds >= EASY

    def sentence(self) -> str:
        """Return what people play, such as `Of players of 1500, 62 % play this, 9 % find the best move.`"""
        return (
            f"Of players of {self.rating}, {self.plays:.0%} play this, {self.finds:.0%} find the best move"
            f"{f' ({self.hardness})' if self.hardness else ''}."
        )


@dataclass(frozen=True, slots=True)
class Imitators:
    """Networks by the rating of the people whom they imitate; none stands for the estimate."""

    networks: Mapping[int, str]

    @classmethod
    def of(cls, files: Sequence[Path]) -> Imitators:
        """Return the imitators of network files with a rating in their names. Raises ValueError."""
        networks = {}
        for file in files:
            found = re.findall(r"(?<!\d)\d{3,4}(?!\d)", file.name)
            if len(found) != 1:
                raise ValueError(f"{file}: its name has no rating: rename it, such as maia-1500.pb.gz")
            networks[int(found[0])] = str(file)
        return cls(networks)

    @property
    def source(self) -> str:
        """Return where the shares come from, and how far they are off."""
        names = ", ".join(Path(each).name for each in self.networks.values())
        if names:
            return f"Shares of people are those of {names}."
        return (
            f"Shares of people are estimates, {ESTIMATE_ERROR:.0%} off on average; `wavefront get maia-1500` "
            "adds a network that imitates people."
        )

    def nearest(self, rating: int, options: Options) -> tuple[int, Options, float]:
        """Return the rating nearest to another, the options of its network, and the temperature."""
        if self.networks:
            nearest = min(self.networks, key=lambda each: abs(each - rating))
            return nearest, with_network(options, self.networks[nearest]), 1.0
        nearest = min(MOST_RATING, max(LEAST_RATING, round(rating, -2)))
        temperature = WARMTH + WARMTH_PER_POINT * (nearest - UNRATED)
        return nearest, with_network(options, NETWORK), temperature

    async def shares(
        self, pool: SearchPool, options: Options, positions: Mapping[int, tuple[Game, int]]
    ) -> dict[int, tuple[int, dict[str, float]]]:
        """Return rating and share of each move, by ply. positions: position and player's rating, by ply.

        Raises PipelineError and NoEvaluatorError.
        """
        found = {}
        groups: dict[int, list[int]] = {}
        for ply, (_, rating) in positions.items():
            groups.setdefault(self.nearest(rating, options)[0], []).append(ply)
        for rating, plies in groups.items():
            _, changed, temperature = self.nearest(rating, options)
            games = [positions[ply][0] for ply in plies]
            evaluated = await asyncio.wrap_future(pool.evaluate(games, changed))
            for ply, output in zip(plies, outputs(games, *evaluated), strict=True):
                weights = {move: share ** (1 / temperature) for move, share in output["policy"].items()}
                total = sum(weights.values())
                found[ply] = rating, {move: weight / total for move, weight in weights.items()}
        return found


ESTIMATE = Imitators({})


def with_network(options: Options, weights: str) -> Options:
    return replace(options, weights=weights, policy_head="", value_head="")


def rating_of(headers: Mapping[str, str], *, white: bool) -> int:
    """Return a player's rating by the tags of a game, or UNRATED."""
    text = headers.get("WhiteElo" if white else "BlackElo", "")
    return int(text) if re.fullmatch(r"[0-9]{3,4}", text) else UNRATED

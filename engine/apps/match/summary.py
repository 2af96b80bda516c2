# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a match as JSON data."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

from engine.apps.campaign.campaign import Throughput
from engine.apps.match.config import MatchConfig
from engine.apps.match.results.standings import Standings
from engine.apps.match.results.statistics import (
    Estimate,
    Tally,
    elo,
    likelihood_of_superiority,
    normalised_elo,
)


def summary(config: MatchConfig, standings: Standings, throughput: Throughput) -> dict[str, Any]:
    """Return players, pairings, SPRT, ends of games and speed. Non-finite numbers are None."""
    data: dict[str, Any] = {
        "event": config.event,
        "format": config.format,
        "games": standings.games,
        "games_scheduled": len(standings.schedule),
        "finished": standings.over,
        "players": [_player(config, standings, number) for number in range(len(config.players))],
        "pairings": [
            {
                "first": config.players[first].name,
                "second": config.players[second].name,
                **tally_data(standings.tally(first, second)),
            }
            for first, second in standings.schedule.pairings
        ],
        "reasons": {str(reason): count for reason, count in standings.reasons.most_common()},
        "speed": speed_data(throughput),
    }
    sprt = standings.sprt
    if sprt is not None:
        data["sprt"] = {
            **asdict(sprt),
            "lower": sprt.lower,
            "upper": sprt.upper,
            "llr": standings.llr(),
            "decision": standings.decision,
        }
    return data


def tally_data(tally: Tally) -> dict[str, Any]:
    """Return results and estimates from the first player's point of view."""
    return {
        "games": tally.games,
        "wins": tally.wins,
        "draws": tally.draws,
        "losses": tally.losses,
        "points": tally.points,
        "score": finite(tally.score),
        "draw_ratio": finite(tally.draw_ratio),
        "pentanomial": list(tally.pairs),
        "elo": estimate_data(elo(tally)),
        "normalised_elo": estimate_data(normalised_elo(tally)),
        "los": finite(likelihood_of_superiority(tally)),
    }


def speed_data(throughput: Throughput) -> dict[str, Any]:
    """Return the speed of the match."""
    return {
        "seconds": throughput.seconds,
        "concurrency": throughput.concurrency,
        "games": throughput.games,
        "moves": throughput.pool.moves,
        "evaluations": throughput.pool.evaluations,
        "positions_per_second": throughput.pool.positions_per_second,
        "mean_batch": throughput.pool.mean_batch,
        "games_per_hour": throughput.games_per_hour,
        "moves_per_second": throughput.moves_per_second,
    }


def _player(config: MatchConfig, standings: Standings, number: int) -> dict[str, Any]:
    player, totals = config.players[number], standings.players[number]
    return {
        "name": player.name,
        "time": str(player.time),
        **tally_data(standings.total(number)),
        "points_as_white": totals.as_white.points,
        "points_as_black": totals.as_black.points,
        "faults": {str(reason): count for reason, count in totals.faults.items()},
    }


def estimate_data(estimate: Estimate) -> dict[str, float | None]:
    """Return a value with its interval."""
    return {name: finite(value) for name, value in asdict(estimate).items()}


def finite(number: float) -> float | None:
    """Return a number if JSON has it."""
    return number if isfinite(number) else None

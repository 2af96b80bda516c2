"""The state of a match as JSON data, and its writing to a file that is always whole."""

from __future__ import annotations

import json
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from engine.match.config import MatchConfig
from engine.match.results.standings import Standings
from engine.match.results.statistics import Estimate, Tally, elo, likelihood_of_superiority, normalised_elo
from engine.match.speed import Speed


def summary(config: MatchConfig, standings: Standings, speed: Speed) -> dict[str, Any]:
    """Players, pairings, SPRT, ends of games and speed. Numbers without a finite value are null."""
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
        "speed": speed.data(),
    }
    sprt = standings.sprt
    if sprt is not None:
        data["sprt"] = {
            "elo0": sprt.elo0,
            "elo1": sprt.elo1,
            "alpha": sprt.alpha,
            "beta": sprt.beta,
            "model": sprt.model,
            "lower": sprt.lower,
            "upper": sprt.upper,
            "llr": standings.llr(),
            "decision": standings.decision,
        }
    return data


def tally_data(tally: Tally) -> dict[str, Any]:
    """Results and what they say, from the first player's view."""
    return {
        "games": tally.games,
        "wins": tally.wins,
        "draws": tally.draws,
        "losses": tally.losses,
        "points": tally.points,
        "score": _finite(tally.score),
        "draw_ratio": _finite(tally.draw_ratio),
        "pentanomial": list(tally.pairs),
        "elo": _estimate(elo(tally)),
        "normalised_elo": _estimate(normalised_elo(tally)),
        "los": _finite(likelihood_of_superiority(tally)),
    }


def write_summary(path: Path, data: dict[str, Any]) -> None:
    """Replace the file by one with this data; a reader never sees half of it. Raises OSError."""
    unfinished = path.with_name(path.name + ".new")
    try:
        unfinished.write_text(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
        unfinished.replace(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


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


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {
        "value": _finite(estimate.value),
        "low": _finite(estimate.low),
        "high": _finite(estimate.high),
    }


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None

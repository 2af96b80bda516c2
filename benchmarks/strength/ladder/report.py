# SPDX-License-Identifier: GPL-3.0-or-later
"""The ladder as a table, as JSON and as Markdown, with what is needed to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from benchmarks.strength.ladder.earlier import EarlierLadder, joined
from benchmarks.strength.ladder.play import ADJUDICATION, TIME_MARGIN_MS, Ladder
from benchmarks.strength.ladder.players import LadderPlayer
from benchmarks.strength.ladder.scale import Results, Scale, fit_scale

NAME_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Run:
    """One start of the command. started: ISO 8601, UTC. games: that it played. seconds: its duration."""

    command: str
    commit: str
    machine: str
    devices: Sequence[str]
    started: str
    games: int = 0
    seconds: float = 0.0
    concurrency: int = 0


@dataclass(frozen=True, slots=True)
class Conditions:
    """What all runs of a ladder have in common. versions: of the programs, by path. movetime_ms: of the
    UCI_Elo players. games_wanted: of each player. runs: in order."""

    seed: int
    games_wanted: int
    movetime_ms: int
    versions: Mapping[str, str]
    runs: Sequence[Run] = field(default=())


def method(conditions: Conditions) -> list[str]:
    """Return sentences that say how the figures came about."""
    resign, draw = ADJUDICATION.resign, ADJUDICATION.draw
    assert resign is not None and draw is not None
    return [
        "Logistic model, scale 400, all results fitted together by maximum likelihood; a draw counts half.",
        "± is 1.96 standard errors from the Fisher information matrix, with the measured variance of the two "
        "games of an opening, which are one sample.",
        "The zero: the mean Elo of the players with a label equals the mean of their labels. Errors are "
        "relative to that mean.",
        f"UCI_Elo players have {conditions.movetime_ms} ms a move, because their labels were not calibrated "
        "at fixed nodes. Other players have fixed nodes.",
        "Pairs of openings with reversed colours, only between players whose expected score is 10 to 90 %.",
        f"Adjudication: a win if both players see {resign.score} centipawns for {resign.moves} moves; a draw "
        f"from move {draw.from_move} if both see at most {draw.score} for {draw.moves} moves, or after "
        f"{ADJUDICATION.max_moves} moves. {TIME_MARGIN_MS} ms of overdrawn time are forgiven.",
    ]


def report_data(
    ladder: Ladder, conditions: Conditions, earlier: Sequence[EarlierLadder] = ()
) -> dict[str, Any]:
    """Return players, pairings and conditions as JSON data, the strongest player first. earlier: ladders
    whose games join the fit."""
    known = {name: player for each in earlier for name, player in each.players.items()} | {
        player.config.name: _described(player, faults)
        for player, faults in zip(ladder.players, ladder.faults, strict=True)
    }
    names, openings = joined(
        [player.config.name for player in ladder.players], ladder.results.openings, earlier
    )
    labels = {
        index: known[name]["label"] for index, name in enumerate(names) if known[name]["label"] is not None
    }
    results = Results.of(len(names), openings)
    scale = fit_scale(results, labels)
    games, points = results.games.sum(axis=1), results.points.sum(axis=1)
    players = [
        {
            **known[names[index]],
            "elo": _finite(scale.elo[index]),
            "error": _finite(scale.error[index]),
            "games": int(games[index]),
            "points": float(points[index]),
        }
        for index in _order(scale)
    ]
    pairings = [
        {
            "first": names[first],
            "second": names[second],
            "games": int(results.games[first, second]),
            "points": float(results.points[first, second]),
        }
        for first in range(len(names))
        for second in range(first + 1, len(names))
        if results.games[first, second]
    ]
    return {
        "games": sum(opening.games for opening in openings),
        "games_short": ladder.missing,
        "dispersion": _finite(scale.dispersion),
        "anchors": [names[player] for player in scale.anchored],
        "players": players,
        "pairings": pairings,
        "method": method(conditions),
        **asdict(conditions),
        "earlier_runs": [run for each in earlier for run in each.runs],
    }


def _described(player: LadderPlayer, faults: int) -> dict[str, Any]:
    """Return name and settings of a player."""
    config = player.config
    return {
        "name": config.name,
        "label": player.label,
        "limits": str(config.time),
        "command": list(config.command),
        "uci_options": dict(config.uci_options),
        "weights": config.options.weights if not config.is_program else "",
        "faults": faults,
    }


def table(data: Mapping[str, Any]) -> str:
    """Return a table of at most 80 columns."""
    lines = [f"{'player':{NAME_WIDTH}} {'Elo':>6} {'±':>5} {'games':>7} {'score':>7}"]
    for player in data["players"]:
        elo, error, games, score = _cells(player)
        lines.append(f"{player['name'][:NAME_WIDTH]:{NAME_WIDTH}} {elo:>6} {error:>5} {games:>7} {score:>7}")
    return "\n".join(lines)


def markdown(data: Mapping[str, Any]) -> str:
    """Return the table and the conditions as a Markdown page."""
    lines = ["# Ladder", "", "| player | Elo | games | score |", "|---|---|---|---|"]
    for player in data["players"]:
        elo, error, games, score = _cells(player)
        rated = f"{elo} ± {error}" if elo != "-" else "-"
        lines.append(f"| {player['name']} | {rated} | {games} | {score} |")
    lines += [
        "",
        f"{data['games']} games, seed {data['seed']}. Programs: {_listed(data['versions'].values())}.",
    ]
    lines += ["", *(f"- {sentence}" for sentence in (*data["method"], *shortfalls(data))), "", "Runs:", ""]
    for run in (*data["earlier_runs"], *data["runs"]):
        devices = f"; {_listed(run['devices'])}" if run["devices"] else ""
        lines += [
            f"- {run['started']}, commit {run['commit']}, {run['games']} games in {run['seconds']:.0f} s, "
            f"{run['concurrency']} concurrent; {run['machine']}{devices}",
            "",
            f"      {run['command']}",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def shortfalls(data: Mapping[str, Any]) -> list[str]:
    """Return a line each about players with too few games, without a rating, and with faults."""
    few = [
        f"{each['name']} {each['games']}" for each in data["players"] if each["games"] < data["games_wanted"]
    ]
    unrated = [each["name"] for each in data["players"] if each["elo"] is None]
    faulty = [f"{each['name']} {each['faults']}" for each in data["players"] if each["faults"]]
    lines = []
    if few:
        lines.append(f"fewer than {data['games_wanted']} games: {_listed(few)}")
    if unrated:
        lines.append(f"no rating, because all games against the others were won or lost: {_listed(unrated)}")
    if faulty:
        lines.append(f"games lost by a fault, such as a time forfeit: {_listed(faulty)}")
    return lines


def _cells(player: Mapping[str, Any]) -> tuple[str, str, str, str]:
    games = player["games"]
    score = f"{100 * player['points'] / games:.1f} %" if games else "-"
    if player["elo"] is None:
        return "-", "-", f"{games:,}", score
    return f"{player['elo']:.0f}", f"{player['error']:.0f}", f"{games:,}", score


def _order(scale: Scale) -> list[int]:
    ratings = [(rating if isfinite(rating) else float("-inf")) for rating in scale.elo]
    return sorted(range(len(ratings)), key=lambda index: -ratings[index])


def _listed(texts: Any) -> str:
    return ", ".join(texts)


def _finite(number: float) -> float | None:
    return float(number) if isfinite(number) else None

# SPDX-License-Identifier: GPL-3.0-or-later
"""Names for players that were given none: the network or the program, and what tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from engine.match.config import PlayerConfig

MAX_DISTINCTION = 40
"""Most characters of limits and options in a name that was not given; beyond that a number says more."""

UNTOLD = ("weights", "evaluator", "threads", "log_file")
"""Options that names leave out: their values are long, or do not change how the player plays."""


def named(players: Sequence[PlayerConfig]) -> tuple[PlayerConfig, ...]:
    """The players, each with a name of its own. Raises ValueError if two were given the same one."""
    given = [player.name for player in players if player.name]
    for name in given:
        if given.count(name) > 1:
            raise ValueError(f"two players are called {name!r}: give them different names")
    bases = [_base_name(player) for player in players]
    seen = set(given)
    result = []
    for player, base in zip(players, bases, strict=True):
        name = player.name
        if not name:
            alike = [
                other for other, its in zip(players, bases, strict=True) if its == base and not other.name
            ]
            name = numbered = f"{base} {_distinction(player, alike)}".strip()
            copy = 2
            while name in seen:
                name, copy = f"{numbered} #{copy}", copy + 1
            seen.add(name)
        result.append(replace(player, name=name))
    return tuple(result)


def _distinction(player: PlayerConfig, alike: Sequence[PlayerConfig]) -> str:
    """The limits and options in which players of the same base name differ; "" if they are too long."""
    traits = [_traits(other) for other in alike]
    differing = {
        key for trait in traits for key in trait if any(other.get(key) != trait[key] for other in traits)
    }
    text = " ".join(value for key, value in _traits(player).items() if key in differing)
    return text if len(text) <= MAX_DISTINCTION else ""


def _traits(player: PlayerConfig) -> dict[str, str]:
    """The limits and the options of a player in words, by key. Options at their default are included, since
    another player may have set them."""
    options: Mapping[str, object] = player.uci_options if player.is_program else asdict(player.options)
    return {"": str(player.time)} | {
        key: f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in options.items()
        if key not in UNTOLD
    }


def _base_name(player: PlayerConfig) -> str:
    if player.is_program:
        return Path(player.command[0]).stem
    weights = Path(player.options.weights).name
    for suffix in (".gz", ".pb"):
        weights = weights.removesuffix(suffix)
    return weights or (
        f"wavefront {player.options.backend}" if player.options.backend != "auto" else "wavefront"
    )

# SPDX-License-Identifier: GPL-3.0-or-later
"""Names for unnamed players: the network or the program, and the distinguishing options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from engine.apps.match.config import PlayerConfig

MAX_DISTINCTION = 40
"""Maximum characters of limits and options in a generated name; a longer one gets a number instead."""

UNTOLD = ("weights", "evaluator", "threads", "log_file")
"""Options excluded from names: their values are long or do not affect the play."""


def named(players: Sequence[PlayerConfig]) -> tuple[PlayerConfig, ...]:
    """Return the players with unique names. Raises ValueError if two given names are equal."""
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
    """Return the limits and options that distinguish players of the same base name; "" if too long."""
    traits = [_traits(other) for other in alike]
    differing = {
        key for trait in traits for key in trait if any(other.get(key) != trait[key] for other in traits)
    }
    text = " ".join(value for key, value in _traits(player).items() if key in differing)
    return text if len(text) <= MAX_DISTINCTION else ""


def _traits(player: PlayerConfig) -> dict[str, str]:
    """Return a player's limits and options as texts by key. Defaults are included, because another player may
    have set them."""
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

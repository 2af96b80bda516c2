# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a tuning: that of a match, the parameters and the iterations.

`configs/tune.toml` shows every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from engine.apps.match.config import MatchConfig
from engine.apps.match.configfile import match_config
from engine.apps.tune.spsa import Parameter, Spsa
from engine.evaluation.link.process import EvaluatorSettings
from engine.options import Options
from engine.options.tables import Table
from protocol.common.settings.sources import source_named
from protocol.common.settings.spec import UNREACHED, SettingsError, setting, shown, shown_number

PLUS, MINUS = "theta+", "theta-"
"""Names of the two players with the tuned options."""

MATCH_KEYS = ("player", "games", "format", "pairs", "sprt", "plot")
"""Settings of a match that a tuning determines itself."""

PAIR_GAMES = 2
"""Games of an opening."""

NEEDED = {
    "cpuct_at_root": ("root_has_own_cpuct", (True,)),
    "cpuct_base_at_root": ("root_has_own_cpuct", (True,)),
    "cpuct_factor_at_root": ("root_has_own_cpuct", (True,)),
    "fpu_value_at_root": ("fpu_strategy_at_root", ("reduction", "absolute")),
}
"""Options that have no effect unless another one has one of these values."""


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """The numbers of a tuning. pairs_per_iteration: openings of an iteration, each played with both
    colours."""

    iterations: int = setting(1000, low=1, high=10**6)
    pairs_per_iteration: int = setting(8, low=1, high=10**4)


@dataclass(frozen=True, slots=True)
class _ParameterKeys:
    """The numbers of [parameters.NAME]. start: 0 stands for none here."""

    start: float = setting(0.0, low=-UNREACHED, high=UNREACHED)
    min: float = setting(0.0, low=-UNREACHED, high=UNREACHED)
    max: float = setting(0.0, low=-UNREACHED, high=UNREACHED)
    c_end: float = setting(0.0, high=UNREACHED)
    r_end: float = setting(0.002, high=1000)


@dataclass(frozen=True, slots=True)
class TuneConfig:
    """A tuning.

    match: its games. Players: theta+ and theta-, after the opponent if there is one. defaults: the table of
    their settings, as written.
    """

    match: MatchConfig
    parameters: tuple[Parameter, ...]
    settings: TuneSettings
    defaults: Mapping[str, Any]

    @property
    def has_opponent(self) -> bool:
        return len(self.match.players) == 3

    @property
    def plus(self) -> int:
        """Player number of theta+. That of theta- follows."""
        return int(self.has_opponent)

    @property
    def spsa(self) -> Spsa:
        return Spsa(self.parameters, self.settings.iterations, self.match.seed)

    @property
    def games_per_iteration(self) -> int:
        return PAIR_GAMES * self.settings.pairs_per_iteration * len(self.match.schedule.pairings)

    @property
    def plot(self) -> Path:
        return self.match.files.journal.with_suffix(".svg")

    def identity(self) -> dict[str, Any]:
        """Return all dependencies of the results as JSON data."""
        data = {"settings": asdict(self.settings), "parameters": [asdict(each) for each in self.parameters]}
        whole: dict[str, Any] = json.loads(json.dumps(data)) | self.match.identity()
        return whole


def tune_config(document: Mapping[str, Any], source: str) -> TuneConfig:
    """Return the configuration in a document. source: its name in messages.

    Raises SettingsError, which names the key.
    """
    for key in MATCH_KEYS:
        if key in document:
            raise SettingsError(
                f"{source}: {key} is a setting of `wavefront match`: remove it; a tuning has iterations, "
                "pairs_per_iteration, [parameters.NAME], [defaults] for both players, and [opponent]"
            )
    root = Table(source, document)
    settings = TuneSettings(**root.settings(TuneSettings))
    parameters, opponent = root.table("parameters"), root.table("opponent")
    rest = root.rest()
    players: list[Mapping[str, Any]] = [{"name": PLUS}, {"name": MINUS}]
    places = [source, source]
    if opponent is not None:
        players.insert(0, {"name": "opponent"} | opponent.rest())
        places.insert(0, opponent.source)
    games = PAIR_GAMES * settings.pairs_per_iteration * settings.iterations
    if games > UNREACHED:
        raise SettingsError(f"{source}: iterations times pairs_per_iteration is over {UNREACHED // 2:,}")
    match = match_config(
        {"event": "Wavefront tuning"} | rest | {"player": players, "games": games, "format": "gauntlet"},
        source,
        places=places,
    )
    if opponent is None:
        match = replace(match, format="round-robin")
    given = rest.get("defaults")
    defaults = dict(given) if isinstance(given, Mapping) else {}
    defaults.pop("option", None)  # Options of programs.
    base = match.players[-1].options
    return TuneConfig(match, _parameters(parameters, source, base), settings, defaults)


def _parameters(table: Table | None, source: str, base: Options) -> tuple[Parameter, ...]:
    entries = table.rest() if table is not None else {}
    if not entries:
        raise SettingsError(
            f"{source}: there is nothing to tune: add a table [parameters.NAME] with min, max and c_end, "
            "where NAME is a numeric option of configs/engine.toml"
        )
    return tuple(
        _parameter(name, Table(f"{source}: [parameters.{name}]", entry), base)
        for name, entry in entries.items()
    )


def _parameter(name: str, table: Table, base: Options) -> Parameter:
    """Return a parameter from its table. Raises SettingsError with the remedy."""
    with source_named(table.source):
        option = Options.setting(name)
        if not option.is_number:
            raise SettingsError(
                f"{name} is not a number, and only numbers can be tuned: set it in [defaults], or compare "
                "its values with `wavefront match`"
            )
        if name in {field.name for field in fields(EvaluatorSettings)}:
            raise SettingsError(
                f"{name} belongs to the evaluator, which both players share: set it in [defaults]"
            )
        needed, values = NEEDED.get(name, ("", ()))
        if needed and getattr(base, needed) not in values:
            wanted = " or ".join(str(value).lower() for value in values)
            raise SettingsError(f"{name} has no effect: set {needed} = {wanted} in [defaults]")
        given = table.settings(_ParameterKeys)
        table.end()
        for key in ("min", "max", "c_end"):
            if key not in given:
                raise SettingsError(f"{key} is missing: write {key} = NUMBER")
        keys = _ParameterKeys(**{"start": getattr(base, name)} | given)
        for key in ("min", "max", "start"):
            try:
                option.check(getattr(keys, key))
            except SettingsError as error:
                raise SettingsError(f"{key}: {error}") from None
        if keys.min >= keys.max:
            raise SettingsError(
                f"min {shown_number(keys.min)} is not below max {shown_number(keys.max)}: exchange them"
            )
        if not keys.min <= keys.start <= keys.max:
            raise SettingsError(
                f"start {shown(keys.start)} is not in {shown_number(keys.min)} to {shown_number(keys.max)}: "
                "change start, or min and max"
            )
        integer, half = isinstance(option.default, int), (keys.max - keys.min) / 2
        least = 0.5 if integer else 0.0
        if not least <= keys.c_end <= half or keys.c_end == 0:
            low = "0.5" if integer else "above 0"
            raise SettingsError(
                f"c_end {shown(keys.c_end)} is not {low} to {shown_number(half)}, half of the range: choose "
                "a step that changes the strength by a few Elo"
            )
        if keys.r_end == 0:
            raise SettingsError("r_end is 0, so no game would change the value: try 0.002 (the default)")
        return Parameter(name, keys.start, keys.min, keys.max, keys.c_end, keys.r_end, integer)

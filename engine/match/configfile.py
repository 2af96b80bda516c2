"""A match's configuration from TOML and from flags. Both become one tree of tables, which is checked here.

`configs/match.toml` shows every key.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from engine.games.openings import OpeningSettings
from engine.match.adjudication import Adjudication, DrawRule, ResignRule, TablebaseResults, TablebaseRule
from engine.match.config import MAX_WORKERS, MatchConfig, PlayerConfig, UciValue
from engine.match.results.sprt import EloModel, Sprt
from engine.match.schedule import Format
from engine.match.timecontrol import TimeControl
from engine.options import Options
from engine.settings.tables import Table
from protocol.settings.spec import SettingsError

DEFAULT_TIME = TimeControl(nodes=400)
"""For players when nothing else is said."""

# What is not written down has the value of these.
_MATCH, _RESIGN, _DRAW = MatchConfig(players=()), ResignRule(), DrawRule()

MAX_DISTINCTION = 40
"""Characters of options in a name that was not given; more say less than a number."""

UNTOLD = ("weights", "evaluator", "threads", "log_file")
"""Options that are no part of a name: long, or not what a player is."""

LIMITS = ("tc", "movetime", "nodes", "depth")


def match_config(document: Mapping[str, Any], place: str) -> MatchConfig:
    """The configuration that tables stand for. place: names their source in messages. Raises
    SettingsError."""
    root = Table(place, document)
    defaults = root.table("defaults") or Table(f"{place}: [defaults]", {})
    players_given = root.value("player")
    chess960 = root.flag("chess960", False)
    if not isinstance(players_given, list):
        players_given = [] if players_given is None else [players_given]
    players = _players(place, players_given, defaults, chess960=chess960)
    try:
        config = MatchConfig(
            players=players,
            event=root.text("event", _MATCH.event),
            format=cast("Format", root.choice("format", ("round-robin", "gauntlet"), "round-robin")),
            games=root.whole("games", _MATCH.games, 1),
            pairs=root.flag("pairs", _MATCH.pairs),
            seed=root.whole("seed", _MATCH.seed, 0, 2**63),
            chess960=chess960,
            concurrency=root.whole("concurrency", 0, 0, 4096),
            workers=root.whole_or_auto("workers", MAX_WORKERS),
            time_margin_ms=root.whole("time_margin_ms", _MATCH.time_margin_ms, 0, 10**6),
            stall_seconds=root.number("stall_seconds", _MATCH.stall_seconds, 0.1, 1e6),
            openings=opening_settings(root.table("openings")),
            adjudication=_adjudication(root.table("adjudication")),
            sprt=_sprt(root.table("sprt")),
            output=root.text("output"),
            plot=root.text("plot"),
        )
        root.end()
        config.schedule  # noqa: B018 - raises if the numbers do not fit
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(f"{place}: {error}") from None
    if config.sprt is not None and len(players) != 2:
        raise SettingsError(f"{place}: an SPRT decides between two players, not {len(players)}")
    return config


def opening_settings(table: Table | None) -> OpeningSettings:
    """What a table [openings] says; the defaults without one. Raises SettingsError."""
    default = OpeningSettings()
    if table is None:
        return default
    settings = OpeningSettings(
        file=table.text("file", default.file),
        order=table.choice("order", ("random", "sequential"), default.order),
        plies=table.whole("plies", default.plies, 0, 1000),
        start=table.whole("start", default.start, 1),
    )
    table.end()
    return settings


def _adjudication(table: Table | None) -> Adjudication:
    if table is None:
        return Adjudication()
    adjudication = Adjudication(
        resign=_resign(table.table("resign")),
        draw=_draw(table.table("draw")),
        max_moves=table.whole("max_moves", 0, 0, 10000) or None,
        tablebase=_tablebase(table.table("tablebase")),
    )
    table.end()
    return adjudication


# A rule that is written down but not enabled is read all the same: a mistake in it would show when it is.


def _resign(table: Table | None) -> ResignRule | None:
    if table is None:
        return None
    enabled = table.flag("enabled", True)
    rule = ResignRule(
        score=table.whole("score", _RESIGN.score, 0, 100_000),
        moves=table.whole("moves", _RESIGN.moves, 1),
        two_sided=table.flag("two_sided", _RESIGN.two_sided),
    )
    table.end()
    return rule if enabled else None


def _draw(table: Table | None) -> DrawRule | None:
    if table is None:
        return None
    enabled = table.flag("enabled", True)
    rule = DrawRule(
        from_move=table.whole("from_move", _DRAW.from_move, 0),
        moves=table.whole("moves", _DRAW.moves, 1),
        score=table.whole("score", _DRAW.score, 0, 100_000),
    )
    table.end()
    return rule if enabled else None


def _tablebase(table: Table | None) -> TablebaseRule | None:
    if table is None:
        return None
    enabled = table.flag("enabled", True)
    rule = TablebaseRule(
        paths=table.texts("paths"),
        men=table.whole("men", 0, 0, 7),
        results=cast("TablebaseResults", table.choice("results", ("all", "wins", "draws"), "all")),
        ignore_fifty_moves=table.flag("ignore_fifty_moves", False),
    )
    table.end()
    if enabled and not rule.paths:
        raise SettingsError(f"{table.place}: paths names no folder with Syzygy tables")
    return rule if enabled else None


def _sprt(table: Table | None) -> Sprt | None:
    if table is None:
        return None
    enabled = table.flag("enabled", True)
    try:
        sprt = Sprt(
            elo0=table.number("elo0", 0.0, -1000, 1000),
            elo1=table.number("elo1", 5.0, -1000, 1000),
            alpha=table.number("alpha", 0.05, 0, 1),
            beta=table.number("beta", 0.05, 0, 1),
            model=cast("EloModel", table.choice("model", ("logistic", "normalised"), "logistic")),
        )
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(f"{table.place}: {error}") from None
    table.end()
    return sprt if enabled else None


def _players(
    place: str, given: Sequence[object], defaults: Table, *, chess960: bool
) -> tuple[PlayerConfig, ...]:
    if len(given) < 2:
        raise SettingsError(f"{place}: a match needs two players, [[player]] or --player, not {len(given)}")
    time = _time(defaults) or DEFAULT_TIME
    options = with_options(Options(chess960=chess960), defaults.rest(), defaults.place)
    players = [
        _player(Table(f"{place}: player {number}", entries), time, options)
        for number, entries in enumerate(given, 1)
    ]
    return _named(place, players)


def _player(table: Table, default_time: TimeControl, default_options: Options) -> PlayerConfig:
    name = table.text("name")
    command = table.texts("program")
    time = _time(table) or default_time
    directory = table.text("directory")
    arguments = table.texts("args")
    own_table = table.table("options")
    given = table.rest() | (own_table.rest() if own_table is not None else {})
    if command or arguments:
        if not command:
            raise SettingsError(f"{table.place}: args belong to a program, and none is given")
        if len(arguments) == 1:
            arguments = tuple(shlex.split(arguments[0], posix=os.name != "nt"))
        bad = [key for key, value in given.items() if not isinstance(value, str | int | float | bool)]
        if bad:
            raise SettingsError(f"{table.place}: {bad[0]} is a text, a number, true or false")
        values = {key: cast("UciValue", str(v) if isinstance(v, float) else v) for key, v in given.items()}
        return PlayerConfig(name, time, command=command + arguments, uci_options=values, directory=directory)
    if directory:
        raise SettingsError(f"{table.place}: directory belongs to a program, and none is given")
    return PlayerConfig(name, time, options=with_options(default_options, given, table.place))


def with_options(options: Options, given: Mapping[str, object], place: str) -> Options:
    """The options with some changed, by attribute; texts are parsed. Raises SettingsError, naming place."""
    try:
        return options.parsed(given)
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}") from None


def _time(table: Table) -> TimeControl | None:
    """The limits in a table, None if there are none."""
    if not any(table.has(key) for key in LIMITS):
        return None
    clock: tuple[int | None, int, int | None] = (None, 0, None)
    text = table.text("tc")
    if text:
        try:
            clock = TimeControl.parse_clock(text)
        except ValueError as error:
            raise SettingsError(f"{table.place}: tc: {error}") from None
    time = TimeControl(
        base_ms=clock[0],
        increment_ms=clock[1],
        moves=clock[2],
        movetime_ms=table.whole("movetime", 0, 1) if table.has("movetime") else None,
        nodes=table.whole("nodes", 0, 1, 2**40) if table.has("nodes") else None,
        depth=table.whole("depth", 0, 1, 1000) if table.has("depth") else None,
    )
    if time.base_ms is not None and time.movetime_ms is not None:
        raise SettingsError(f"{table.place}: tc and movetime exclude each other")
    return time


def _named(place: str, players: Sequence[PlayerConfig]) -> tuple[PlayerConfig, ...]:
    """Give a name to those without one, and make all names different."""
    given = [player.name for player in players if player.name]
    for name in given:
        if given.count(name) > 1:
            raise SettingsError(f"{place}: two players are called {name!r}: give them different names")
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
    """What the player has that differs among those which would have the same name; "" if that is much."""
    traits = [_traits(other) for other in alike]
    differing = {
        key for trait in traits for key in trait if any(other.get(key) != trait[key] for other in traits)
    }
    text = " ".join(value for key, value in _traits(player).items() if key in differing)
    return text if len(text) <= MAX_DISTINCTION else ""


def _traits(player: PlayerConfig) -> dict[str, str]:
    """The limits and the options of a player in words, by key. Options at their default are there too, for
    the player that is compared with another one."""
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

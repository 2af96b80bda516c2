# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsing of a match's configuration. TOML and flags are merged to one tree of tables, which this checks.

`configs/match.toml` shows every key.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.apps.games.openings import OpeningSettings
from engine.apps.match.adjudication import Adjudication, DrawRule, ResignRule, TablebaseRule
from engine.apps.match.config import MatchConfig, PlayerConfig, UciValue
from engine.apps.match.players.names import named
from engine.apps.match.results.sprt import Sprt
from engine.apps.match.timecontrol import TimeControl
from engine.options import Options
from engine.options.tables import Table
from engine.search.strength.levels import with_network
from protocol.common.settings.sources import source_named
from protocol.common.settings.spec import UNREACHED, SettingsError, setting

UCI_OPTION = "option."

FOREIGN = {
    "cmd": "program",
    "proto": "left out: every program speaks UCI",
    "st": "movetime, in milliseconds",
    "dir": "directory",
}
"""Keys of fastchess and cutechess, and what they are here."""

"""Prefix of a program's UCI option, as in other match programs; required in settings for all players."""

DEFAULT_TIME = TimeControl(nodes=400)
"""Default limit of players."""


@dataclass(frozen=True, slots=True)
class _LimitKeys:
    """The keys of limits, in [defaults] and [[player]]. Missing ones do not limit."""

    tc: str = setting("")
    movetime: int = setting(0, low=1, high=UNREACHED)
    nodes: int = setting(0, low=1, high=2**40)
    depth: int = setting(0, low=1, high=1000)


@dataclass(frozen=True, slots=True)
class _PlayerKeys:
    """The keys of [[player]] besides limits and options."""

    name: str = setting("")
    program: tuple[str, ...] = setting(())
    args: tuple[str, ...] = setting(())
    directory: str = setting("")
    ponder: bool = setting(False)


@dataclass(frozen=True, slots=True)
class _AdjudicationKeys:
    """The keys of [adjudication] besides tables."""

    max_moves: int = setting(0, high=10_000)


def match_config(
    document: Mapping[str, Any], source: str, *, places: Sequence[str] | None = None
) -> MatchConfig:
    """Return the configuration in a document. source: its name in messages. places: names of the players'
    tables there (default: player 1, …).

    Raises SettingsError, which names the key.
    """
    root = Table(source, document)
    defaults = root.table("defaults") or Table(f"{source}: [defaults]", {})
    given = root.value("player")
    players = given if isinstance(given, list) else [] if given is None else [given]
    settings = root.settings(MatchConfig)
    config = MatchConfig(
        players=_players(source, players, defaults, chess960=settings.get("chess960", False), places=places),
        openings=root.part("openings", OpeningSettings),
        adjudication=_adjudication(root.table("adjudication")),
        sprt=root.rule("sprt", Sprt),
        **settings,
    )
    root.end()
    with source_named(source):
        config.schedule  # noqa: B018 - raises if the numbers do not fit
    if config.sprt is not None and len(players) != 2:
        raise SettingsError(f"{source}: an SPRT decides between two players, not {len(players)}")
    return config.with_output_named()


def _adjudication(table: Table | None) -> Adjudication:
    if table is None:
        return Adjudication()
    adjudication = Adjudication(
        resign=table.rule("resign", ResignRule),
        draw=table.rule("draw", DrawRule),
        max_moves=table.settings(_AdjudicationKeys).get("max_moves") or None,
        tablebase=table.rule("tablebase", TablebaseRule),
    )
    table.end()
    if adjudication.tablebase is not None and not adjudication.tablebase.paths:
        raise SettingsError(f"{table.source[:-1]}.tablebase]: paths names no folder with Syzygy tables")
    return adjudication


def _players(
    source: str,
    given: Sequence[object],
    defaults: Table,
    *,
    chess960: bool,
    places: Sequence[str] | None,
) -> tuple[PlayerConfig, ...]:
    if len(given) < 2:
        raise SettingsError(f"{source}: a match needs two players, [[player]] or --player, not {len(given)}")
    time = _time(defaults) or DEFAULT_TIME
    uci_options, own_options = _by_kind(defaults)
    with source_named(defaults.source):
        options = defaults.applied(Options(chess960=chess960), own_options)
    places = places or [f"{source}: player {number}" for number in range(1, len(given) + 1)]
    players = [
        player_config(Table(place, entries), time, options, uci_options)
        for place, entries in zip(places, given, strict=True)
    ]
    if own_options and all(player.is_program for player in players):
        key = next(iter(own_options))
        raise SettingsError(
            f"{defaults.source}: {key} is an option of this engine, and no player is: an option of all "
            f"programs is written {UCI_OPTION}NAME, one of a single one with that player"
        )
    with source_named(source):
        return named(players)


def player_config(
    table: Table,
    default_time: TimeControl,
    default_options: Options,
    default_uci_options: Mapping[str, UciValue] | None = None,
) -> PlayerConfig:
    """Return the player in a table; its name may be "". Missing options come from default_options, or from
    default_uci_options for a program. Raises SettingsError."""
    time = _time(table) or default_time
    player = _PlayerKeys(**table.settings(_PlayerKeys))
    own_table = table.table("options")
    uci_options, given = _by_kind(table)
    given |= own_table.rest() if own_table is not None else {}
    with source_named(table.source):
        for key in FOREIGN.keys() & given.keys():
            raise SettingsError(f"no such option: {key!r}; here it is {FOREIGN[key]}")
        if player.program:
            # All options here are the program's, with and without the prefix.
            for key, value in given.items():
                if key in uci_options:
                    raise SettingsError(f"{key} is given twice")
                uci_options[key] = _uci_value(key, value)
            named_here = {key.lower() for key in uci_options}
            unnamed = {
                key: value
                for key, value in (default_uci_options or {}).items()
                if key.lower() not in named_here
            }
            return PlayerConfig(
                player.name,
                time,
                command=player.program + _words(player.args),
                uci_options=unnamed | uci_options,
                directory=player.directory,
                ponder=player.ponder,
            )
        if uci_options:
            raise SettingsError(
                f"{UCI_OPTION}{next(iter(uci_options))} belongs to a program, and none is given: options of "
                "this engine are written as in configs/engine.toml"
            )
        if player.args:
            raise SettingsError("args belong to a program, and none is given")
        if player.ponder:
            raise SettingsError(
                "players of this engine share an evaluator and do not ponder; write program=wavefront"
            )
        if player.directory:
            raise SettingsError("directory belongs to a program, and none is given")
        options = table.applied(default_options, given)
        return PlayerConfig(player.name, time, options=with_network(options))


def _by_kind(table: Table) -> tuple[dict[str, UciValue], dict[str, object]]:
    """Return the unread entries: the options of programs, without prefix, and the rest. Raises
    SettingsError."""
    rest = table.rest()
    dotted = rest.pop(UCI_OPTION.rstrip("."), {})  # TOML parses option.NAME as a table.
    if not isinstance(dotted, Mapping):
        raise SettingsError(f"{table.source}: options of programs are written {UCI_OPTION}NAME = value")
    given = dict(dotted) | {
        key.removeprefix(UCI_OPTION): rest.pop(key) for key in list(rest) if key.startswith(UCI_OPTION)
    }
    with source_named(table.source):
        return {key: _uci_value(key, value) for key, value in given.items()}, rest


def _words(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Return a program's arguments; one string may contain several. Raises ValueError for an open quote."""
    return tuple(shlex.split(arguments[0], posix=os.name != "nt")) if len(arguments) == 1 else arguments


def _uci_value(key: str, value: object) -> UciValue:
    """Return a value for a program, with fractional numbers as strings. Raises SettingsError."""
    if isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return str(value)
    raise SettingsError(f"{key} is a text, a number, true or false")


def _time(table: Table) -> TimeControl | None:
    """Return the limits in a table; None without any."""
    limits = table.settings(_LimitKeys)
    if not limits:
        return None
    clock: tuple[int | None, int, int | None] = (None, 0, None)
    if limits.get("tc"):
        with source_named(f"{table.source}: tc"):
            clock = TimeControl.parse_clock(limits["tc"])
    time = TimeControl(*clock, limits.get("movetime"), limits.get("nodes"), limits.get("depth"))
    if time.base_ms is not None and time.movetime_ms is not None:
        raise SettingsError(f"{table.source}: tc and movetime exclude each other")
    return time

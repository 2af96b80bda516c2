"""A match's configuration from TOML and from flags. Both become one tree of tables, which is checked here.

`configs/match.toml` shows every key. On the command line a table is written `key=value,key=value`.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast

from engine.match.config import (
    MAX_WORKERS,
    Adjudication,
    DrawRule,
    MatchConfig,
    PlayerConfig,
    ResignRule,
    TablebaseResults,
    TablebaseRule,
    UciValue,
)
from engine.match.openings import OpeningSettings, Order
from engine.match.schedule import Format
from engine.match.sprt import EloModel, Sprt
from engine.match.timecontrol import TimeControl
from engine.options import OptionError, Options, spec_of_attribute

DEFAULT_TIME = TimeControl(nodes=400)
"""For players when nothing else is said."""

# What is not written down has the value of these.
_MATCH, _RESIGN, _DRAW = MatchConfig(players=()), ResignRule(), DrawRule()

LIMITS = ("tc", "movetime", "nodes", "depth")

T = TypeVar("T", bound=str)


class MatchConfigError(OptionError):
    """A match that cannot be played as it is written down. The message names file or flag and key."""


class Table:
    """One table of the configuration, read key by key; `end` complains about keys that nobody read."""

    def __init__(self, place: str, entries: object) -> None:
        self.place = place
        if not isinstance(entries, Mapping):
            raise MatchConfigError(f"{place} is a table of key = value, not {entries!r}")
        self._entries: dict[str, object] = dict(entries)
        self._known: list[str] = []

    def value(self, key: str) -> object:
        """Whatever stands under a key, None if nothing does."""
        self._known.append(key)
        return self._entries.pop(key, None)

    def has(self, key: str) -> bool:
        return key in self._entries

    def rest(self) -> dict[str, object]:
        """All that was not read yet."""
        rest, self._entries = self._entries, {}
        return rest

    def table(self, key: str) -> Table | None:
        """A table inside this one, None if it is not there."""
        value = self.value(key)
        return None if value is None else Table(f"{self.place}: [{key}]", value)

    def text(self, key: str, default: str = "") -> str:
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(key, "a text", value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; a single one stands for a list of one."""
        value = self.value(key)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(text, str) for text in values):
            raise self.error(key, "a text or a list of texts", value)
        return tuple(values)

    def choice(self, key: str, choices: Sequence[T], default: T) -> T:
        value = self.value(key)
        if value is None:
            return default
        if value not in choices:
            raise self.error(key, "one of " + ", ".join(choices), value)
        return cast("T", value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.value(key)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            value = value.lower() == "true"
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false", value)
        return value

    def whole(self, key: str, default: int, low: int, high: int = 10**9) -> int:
        number = self.number(key, default, low, high)
        if number != int(number):
            raise self.error(key, "a whole number", number)
        return int(number)

    def whole_or_auto(self, key: str, high: int) -> int:
        """The number, 0 for "auto" and if nothing is there."""
        if self._entries.get(key) == "auto":
            self._entries[key] = 0
        return self.whole(key, 0, 0, high)

    def number(self, key: str, default: float, low: float, high: float) -> float:
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, str):
            try:
                value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
            except ValueError:
                raise self.error(key, "a number", value) from None
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.error(key, f"a number from {low:g} to {high:g}", value)
        return value

    def error(self, key: str, wanted: str, value: object) -> MatchConfigError:
        return MatchConfigError(f"{self.place}: {key} is {wanted}, not {value!r}")

    def end(self) -> None:
        for key in self._entries:
            near = get_close_matches(key, self._known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f" (known are {', '.join(self._known)})"
            raise MatchConfigError(f"{self.place}: no such key: {key!r}{hint}")


def read_document(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises MatchConfigError."""
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise MatchConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MatchConfigError(f"{path} is not TOML: {error}") from None


def parse_pairs(text: str, place: str) -> dict[str, str]:
    """`key=value,key=value` as a table. Quotes keep commas: `args="a,b"`. A first part without = is kept
    under "".

    Raises MatchConfigError.
    """
    lexer = shlex.shlex(text, posix=True, punctuation_chars="")
    lexer.whitespace, lexer.whitespace_split, lexer.escape, lexer.commenters = ",", True, "", ""
    entries: dict[str, str] = {}
    try:
        for part in lexer:
            key, equals, value = part.partition("=")
            if not equals:
                key, value = ("", key) if not entries else (key, "true")
            entries[key.strip()] = value.strip()
    except ValueError as error:
        raise MatchConfigError(f"{place}: {text!r}: {error}") from None
    return entries


def merge(base: MutableMapping[str, Any], over: Mapping[str, Any]) -> None:
    """Put `over` on top of `base`, table by table."""
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value


def match_config(document: Mapping[str, Any], place: str) -> MatchConfig:
    """The configuration that tables stand for. place: names their source in messages. Raises
    MatchConfigError."""
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
            openings=_openings(root.table("openings")),
            adjudication=_adjudication(root.table("adjudication")),
            sprt=_sprt(root.table("sprt")),
            output=root.text("output"),
            plot=root.text("plot"),
        )
        root.end()
        config.schedule  # noqa: B018 - raises if the numbers do not fit
    except MatchConfigError:
        raise
    except ValueError as error:
        raise MatchConfigError(f"{place}: {error}") from None
    if config.sprt is not None and len(players) != 2:
        raise MatchConfigError(f"{place}: an SPRT decides between two players, not {len(players)}")
    return config


def _openings(table: Table | None) -> OpeningSettings:
    if table is None:
        return OpeningSettings()
    settings = OpeningSettings(
        file=table.text("file"),
        order=cast("Order", table.choice("order", ("random", "sequential"), "random")),
        plies=table.whole("plies", 0, 0, 1000),
        start=table.whole("start", 1, 1),
    )
    table.end()
    return settings


def _adjudication(table: Table | None) -> Adjudication:
    if table is None:
        return Adjudication()
    resign, draw, tablebase = table.table("resign"), table.table("draw"), table.table("tablebase")
    max_moves = table.whole("max_moves", 0, 0, 10000)
    table.end()
    adjudication = Adjudication(max_moves=max_moves or None)
    changes: dict[str, Any] = {}
    if resign is not None and resign.flag("enabled", True):
        changes["resign"] = ResignRule(
            score=resign.whole("score", _RESIGN.score, 0, 100_000),
            moves=resign.whole("moves", _RESIGN.moves, 1),
            two_sided=resign.flag("two_sided", _RESIGN.two_sided),
        )
        resign.end()
    if draw is not None and draw.flag("enabled", True):
        changes["draw"] = DrawRule(
            from_move=draw.whole("from_move", _DRAW.from_move, 0),
            moves=draw.whole("moves", _DRAW.moves, 1),
            score=draw.whole("score", _DRAW.score, 0, 100_000),
        )
        draw.end()
    if tablebase is not None and tablebase.flag("enabled", True):
        rule = TablebaseRule(
            paths=tablebase.texts("paths"),
            men=tablebase.whole("men", 0, 0, 7),
            results=cast("TablebaseResults", tablebase.choice("results", ("all", "wins", "draws"), "all")),
            ignore_fifty_moves=tablebase.flag("ignore_fifty_moves", False),
        )
        tablebase.end()
        if not rule.paths:
            raise MatchConfigError(f"{tablebase.place}: paths names no folder with Syzygy tables")
        changes["tablebase"] = rule
    return Adjudication(max_moves=adjudication.max_moves, **changes)


def _sprt(table: Table | None) -> Sprt | None:
    if table is None or not table.flag("enabled", True):
        return None
    try:
        sprt = Sprt(
            elo0=table.number("elo0", 0.0, -1000, 1000),
            elo1=table.number("elo1", 5.0, -1000, 1000),
            alpha=table.number("alpha", 0.05, 0, 1),
            beta=table.number("beta", 0.05, 0, 1),
            model=cast("EloModel", table.choice("model", ("logistic", "normalised"), "logistic")),
        )
    except MatchConfigError:
        raise
    except ValueError as error:
        raise MatchConfigError(f"{table.place}: {error}") from None
    table.end()
    return sprt


def _players(
    place: str, given: Sequence[object], defaults: Table, *, chess960: bool
) -> tuple[PlayerConfig, ...]:
    if len(given) < 2:
        raise MatchConfigError(
            f"{place}: a match needs two players, [[player]] or --player, not {len(given)}"
        )
    default_time = _time(defaults) or DEFAULT_TIME
    default_options = defaults.rest()
    players = []
    for number, entries in enumerate(given, 1):
        table = Table(f"{place}: player {number}", entries)
        players.append(_player(table, default_time, default_options, chess960=chess960))
    return _named(players)


def _player(
    table: Table, default_time: TimeControl, default_options: Mapping[str, object], *, chess960: bool
) -> PlayerConfig:
    name = table.text("name")
    command = table.texts("program")
    time = _time(table) or default_time
    directory = table.text("directory")
    arguments = table.texts("args")
    own_table = table.table("options")
    given = table.rest() | (own_table.rest() if own_table is not None else {})
    if command or arguments:
        if not command:
            raise MatchConfigError(f"{table.place}: args belong to a program, and none is given")
        if len(arguments) == 1:
            arguments = tuple(shlex.split(arguments[0], posix=os.name != "nt"))
        bad = [key for key, value in given.items() if not isinstance(value, str | int | float | bool)]
        if bad:
            raise MatchConfigError(f"{table.place}: {bad[0]} is a text, a number, true or false")
        values = {key: cast("UciValue", str(v) if isinstance(v, float) else v) for key, v in given.items()}
        return PlayerConfig(name, time, command=command + arguments, uci_options=values, directory=directory)
    if directory:
        raise MatchConfigError(f"{table.place}: directory belongs to a program, and none is given")
    options = Options(chess960=chess960)
    for source, values_given in (("[defaults]", default_options), (table.place, given)):
        for key, value in values_given.items():
            try:
                spec = spec_of_attribute(key)
                parsed = spec.parse(value) if isinstance(value, str) else value
                options = options.changed(**{key: parsed})
            except OptionError as error:
                raise MatchConfigError(f"{source}: {error}") from None
    return PlayerConfig(name, time, options=options)


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
            raise MatchConfigError(f"{table.place}: tc: {error}") from None
    time = TimeControl(
        base_ms=clock[0],
        increment_ms=clock[1],
        moves=clock[2],
        movetime_ms=table.whole("movetime", 0, 1) if table.has("movetime") else None,
        nodes=table.whole("nodes", 0, 1, 2**40) if table.has("nodes") else None,
        depth=table.whole("depth", 0, 1, 1000) if table.has("depth") else None,
    )
    if time.base_ms is not None and time.movetime_ms is not None:
        raise MatchConfigError(f"{table.place}: tc and movetime exclude each other")
    return time


def _named(players: Sequence[PlayerConfig]) -> tuple[PlayerConfig, ...]:
    """Give a name to those without one, and make all names different."""
    bases = [player.name or _base_name(player) for player in players]
    names = list(bases)
    for number, player in enumerate(players):
        if not player.name and bases.count(bases[number]) > 1:
            others = [p for i, p in enumerate(players) if i != number and not p.name]
            if all(p.time != player.time for p in others):
                names[number] = f"{names[number]} {player.time}"
    seen: set[str] = set()
    result = []
    for player, base in zip(players, names, strict=True):
        name, copy = base, 2
        while name in seen:
            if player.name:
                raise MatchConfigError(f"two players are called {player.name!r}: give them different names")
            name, copy = f"{base} #{copy}", copy + 1
        seen.add(name)
        result.append(replace(player, name=name))
    return tuple(result)


def _base_name(player: PlayerConfig) -> str:
    if player.is_program:
        return Path(player.command[0]).stem
    weights = Path(player.options.weights).name
    for suffix in (".gz", ".pb"):
        weights = weights.removesuffix(suffix)
    return weights or (
        f"wavefront {player.options.backend}" if player.options.backend != "auto" else "wavefront"
    )

# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries: positions of one game, limits, options and the contents of answers. Parsed from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from sys import intern
from typing import Any

from engine._core import Game
from engine.apps.analysis.errors import QueryError
from engine.apps.analysis.fields import QueryFields
from engine.apps.analysis.messages import listed, whole_numbers
from engine.apps.analysis.restrictions import Restriction, read_restrictions, resolved
from engine.options import OPTIONS, Options
from engine.search.fen import read_fen
from engine.search.limits import Limits
from engine.search.notation import read_move
from engine.search.strength.contempt import Contempt
from protocol.common.settings.spec import Setting, SettingsError, settings_of, shown, unknown

MOST_MOVES = 20_000
"""Maximum moves of a game: no game of chess is half as long."""

LISTS = ("analyze_turns", "priorities", "avoid_moves", "allow_moves", "options")
"""The fields with several values."""

NAMES = ("id", *settings_of(QueryFields), *LISTS)
"""All fields of a query."""

LIMITS = ("nodes", "movetime", "depth", "mate")
"""The fields that limit a search."""

SEARCH_FIELDS = (*LIMITS[1:], "infinite", "avoid_moves", "allow_moves")
"""Further fields without effect if there is no search."""

OPTION_SECTIONS = ("search", "contempt", "choice")
OPTION_NAMES = (
    "history_fill",
    "minibatch_size",
    "batches_in_flight",
    "visits_per_position",
    "in_flight_factor",
    "second_batch",
    "look_ahead",
    "cache_history_length",
    "syzygy_50_move_rule",
    "syzygy_fast_play",
    "score_type",
)
"""Options that a query may set: these, and those of OPTION_SECTIONS. The operator sets the others: files,
evaluators, memory."""

QUERY_OPTIONS: Mapping[str, Setting] = {
    option.name: option
    for option in OPTIONS
    if option.section in OPTION_SECTIONS or option.name in OPTION_NAMES
}


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. turns: number of moves before each position to analyse, in the requested order.
    priorities: of each turn. limits: without the moves to search, which differ by turn.
    """

    id: str
    fields: QueryFields
    turns: tuple[int, ...]
    priorities: tuple[int, ...]
    options: Options
    limits: Limits
    restrictions: tuple[Restriction, ...]
    _contempts: dict[str, Contempt] = field(default_factory=dict, compare=False)

    @property
    def searched(self) -> bool:
        """True if positions are searched, False if only the network evaluates them."""
        return self.limits.nodes != 0

    def contempt(self, turn: str) -> Contempt:
        """Return the contempt with "white" or "black" to move."""
        if turn not in self._contempts:
            self._contempts[turn] = Contempt.of(self.options, turn, self.limits)
        return self._contempts[turn]

    def game(self, turn: int) -> Game:
        """Return the game up to a turn."""
        fields = self.fields
        fen = None if fields.fen == "startpos" else fields.fen
        game = Game(fen, fields.chess960, allow_opponent_check=not self.searched)
        for move in fields.moves[:turn]:
            game.push_uci(move)
        return game


def read_query(
    message: Mapping[str, Any], identity: str, options: Options, nodes: int
) -> tuple[Query, list[QueryError]]:
    """Parse the JSON object of a query. Return the query, and warnings.

    options: the engine's, which the query's override. nodes: visits if the query has no limit. Raises
    QueryError.
    """
    fields = _fields(message, options)
    searched = "nodes" not in message or fields.nodes > 0
    game, notes = read_game(fields, playable=searched)
    # Share the few distinct strings of all games, so that waiting queries need little memory.
    fields = replace(fields, moves=tuple(map(intern, game.moves())))
    if notes:
        fields = replace(fields, fen=game.start_fen())
    turns = _turns(message, len(fields.moves))
    priorities = _priorities(message, fields.priority, len(turns))
    restrictions = tuple(
        restriction
        for name in ("avoid_moves", "allow_moves")
        if name in message
        for restriction in read_restrictions(name, message[name])
    )
    query = Query(
        identity,
        fields,
        turns,
        priorities,
        _options(message, options, fields),
        _limits(fields, nodes) if searched else Limits(nodes=0),
        restrictions,
    )
    unused = [name for name in message if name not in NAMES]
    warnings = [QueryError("; ".join(notes), "fen")] if notes else []
    if unused:
        warnings.append(_unused(unused))
    if not searched:
        named = [name for name in SEARCH_FIELDS if message.get(name)]
        if named:
            warnings.append(QueryError(f"nodes 0 is without a search: {listed(named)} not used", named[0]))
        return query, warnings
    if fields.mate and any(restriction.until_depth > 1 for restriction in restrictions):
        raise QueryError("mate searches all moves after the first: until_depth is 1 with it", "mate")
    if restrictions:
        kept, problems = resolved(restrictions, [query.game(turn) for turn in turns])
        query, warnings = replace(query, restrictions=kept), [*warnings, *problems]
    if fields.infinite and (named := [name for name in LIMITS if getattr(fields, name)]):
        warnings.append(QueryError(f"an infinite search has no limits: {listed(named)} not used", named[0]))
    return query, warnings


def _fields(message: Mapping[str, Any], options: Options) -> QueryFields:
    fields = QueryFields(multipv=options.multipv, chess960=options.chess960)
    given = {name: message[name] for name in settings_of(QueryFields) if name in message}
    try:
        fields = fields.changed(**given)
    except SettingsError:
        for name, value in given.items():  # Find the invalid one.
            try:
                fields.changed(**{name: value})
            except SettingsError as error:
                raise QueryError(str(error), name) from None
        raise
    return fields


def read_game(fields: QueryFields, *, playable: bool) -> tuple[Game, list[str]]:
    """Return the game with all its moves, and notes about its FEN.

    playable: reject a FEN whose side to move could take the king. Raises QueryError.
    """
    if len(fields.moves) > MOST_MOVES:
        raise QueryError(f"moves has at most {MOST_MOVES:,} moves, not {len(fields.moves):,}", "moves")
    try:
        if fields.fen == "startpos":
            game, corrections = Game(None, fields.chess960), list[str]()
        else:
            game, corrections = read_fen(fields.fen, fields.chess960, allow_opponent_check=not playable)
    except ValueError as error:
        raise QueryError(str(error), "fen") from None
    notes = [f"fen corrected: {'; '.join(corrections)}"] if corrections else []
    if not game.playable:
        notes.append("not a legal position: the side to move could take the king")
    for number, text in enumerate(fields.moves, 1):
        try:
            try:
                game.push_uci(text)
            except ValueError:
                game.push_uci(_named_move(game, text))
        except ValueError as error:
            raise QueryError(f"move {number}: {error}", "moves") from None
    return game, notes


def _named_move(game: Game, text: str) -> str:
    """Return a move in another notation as UCI. Raises ValueError."""
    try:
        return read_move(game, text)
    except ValueError as error:
        raise ValueError(f"move {shown(text)}: {error}") from None


def _turns(message: Mapping[str, Any], last: int) -> tuple[int, ...]:
    if "analyze_turns" not in message:
        return (last,)
    turns = whole_numbers("analyze_turns", message["analyze_turns"])
    if not turns:
        raise QueryError("analyze_turns is empty: there is nothing to analyse", "analyze_turns")
    for turn in turns:
        if not 0 <= turn <= last:
            raise QueryError(
                f"analyze_turns: there is no turn {turn}; with {last} moves the turns are 0 to {last}",
                "analyze_turns",
            )
    if len(set(turns)) < len(turns):
        raise QueryError("analyze_turns names a turn twice", "analyze_turns")
    return turns


def _priorities(message: Mapping[str, Any], priority: int, turns: int) -> tuple[int, ...]:
    if "priorities" not in message:
        return (priority,) * turns
    if "priority" in message:
        raise QueryError("priority and priorities exclude each other", "priorities")
    priorities = whole_numbers("priorities", message["priorities"])
    if "analyze_turns" not in message or len(priorities) != turns:
        raise QueryError(
            f"priorities has one number for each of analyze_turns, not {len(priorities)} for "
            f"{turns if 'analyze_turns' in message else 'none'}",
            "priorities",
        )
    return priorities


def _options(message: Mapping[str, Any], options: Options, fields: QueryFields) -> Options:
    """Return the engine's options for this query."""
    given = message.get("options", {})
    if not isinstance(given, dict):
        raise QueryError(f"options is an object, not {shown(given)}", "options")
    for name in given:
        if name not in QUERY_OPTIONS:
            if name in settings_of(Options):
                raise QueryError(
                    f"the option {name} is not for a query to set; `query_options` lists those that are",
                    "options",
                )
            raise QueryError(str(unknown("option", name, QUERY_OPTIONS)), "options")
    usual = _usual_options(options, fields.chess960, fields.multipv, fields.include_statistics)
    try:
        return usual.changed(**given) if given else usual
    except SettingsError as error:
        raise QueryError(str(error), "options") from None


@lru_cache(maxsize=64)
def _usual_options(options: Options, chess960: bool, multipv: int, statistics: bool) -> Options:
    """Return the options of queries that set none: one cached object, as it is slow to create and large."""
    # Search all requested visits by default, and without contempt, as there is no opponent.
    mode = "disable" if options.contempt_mode == "play" else options.contempt_mode
    return replace(
        options,
        smart_pruning_factor=0.0,
        contempt_mode=mode,
        chess960=chess960,
        multipv=multipv,
        log_live_stats=statistics,
    )


def _limits(fields: QueryFields, nodes: int) -> Limits:
    limits = Limits(
        nodes=fields.nodes or None,
        movetime_ms=fields.movetime or None,
        depth=fields.depth or None,
        mate=fields.mate or None,
        infinite=fields.infinite,
    )
    return replace(limits, nodes=nodes) if limits.unbounded and not limits.infinite else limits


def _unused(names: list[str]) -> QueryError:
    """Return the warning about unknown fields."""
    from difflib import get_close_matches

    near = [(name, found[0]) for name in names[:3] if (found := get_close_matches(name, NAMES, n=1))]
    meant = " and ".join(repr(known) for _, known in near)
    hint = f"; did you mean {meant}?" if near else ""
    if len(names) == 1:
        return QueryError(f"there is no field {shown(names[0])}, it is not used{hint}", names[0])
    return QueryError(f"there are no fields {listed(names)}, they are not used{hint}", names[0])

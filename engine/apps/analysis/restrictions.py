# SPDX-License-Identifier: GPL-3.0-or-later
"""Restrictions of a search to some moves, or to all except some, down to a depth."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from engine._core import Game
from engine.apps.analysis.errors import QueryError
from engine.apps.analysis.messages import listed
from engine.search.notation import is_move, read_move, uci_of
from protocol.common.settings.spec import shown

PLAYERS = ("white", "black")
MOST_DEPTH = 1000
MOST_RESTRICTIONS = 64
MOST_MOVES = 1000
"""Maximum moves of one restriction."""

CoreRule = tuple[bool, Sequence[str], int, bool]
"""A rule of Tree.set_move_rules."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """One entry of `avoid_moves` or `allow_moves`.

    moves: UCI notation, or as given before `resolved`. player: side; empty for the side to move in the
    analysed position. until_depth: it applies to moves less than this many plies after that position. only:
    search only these moves.
    """

    moves: tuple[str, ...]
    player: Literal["", "white", "black"] = ""
    until_depth: int = 1
    only: bool = False

    def of(self, turn: str) -> str:
        """Return the side that it restricts. turn: side to move, "white" or "black"."""
        return self.player or turn


def read_restrictions(field: str, value: object) -> tuple[Restriction, ...]:
    """Parse the field `avoid_moves` or `allow_moves`. It has moves of the side to move, or objects with
    `moves` and optionally `player` and `until_depth`. Raises QueryError."""
    only = field == "allow_moves"
    if not isinstance(value, list):
        raise QueryError(f"{field} is a list of moves or of objects, not {shown(value)}", field)
    if value and all(isinstance(entry, str) for entry in value):
        return (Restriction(_moves(field, value), only=only),)
    if len(value) > MOST_RESTRICTIONS:
        raise QueryError(f"{field} has at most {MOST_RESTRICTIONS} objects, not {len(value)}", field)
    found = tuple(_restriction(field, entry, only) for entry in value)
    players = [restriction.player for restriction in found]
    if only and len(set(players)) < len(players):
        raise QueryError("allow_moves has one object for each player, at most", field)
    return found


def resolved(
    restrictions: Sequence[Restriction], games: Sequence[Game]
) -> tuple[tuple[Restriction, ...], list[QueryError]]:
    """Return restrictions in UCI notation, and a warning per field for moves that are never legal.

    games: the positions to analyse, to which SAN and moves of `until_depth` 1 refer. SAN that is legal in
    none is ignored. If no allowed move is legal, the search reports it.
    """
    found: list[Restriction] = []
    unused: dict[str, list[str]] = {}
    for each in restrictions:
        of_player = [game for game in games if each.of(game.turn) == game.turn]
        legal = [(game, game.legal_moves()) for game in of_player]
        moves: list[str] = []
        illegal: list[str] = []
        for text in each.moves:
            named = _in_uci(of_player, text)
            reaches = bool(named) and (
                each.until_depth > 1 or any(_as_legal(*at, move) in at[1] for at in legal for move in named)
            )
            if not reaches:
                illegal.append(text)
            moves += [move for move in named if move not in moves]
        found.append(replace(each, moves=tuple(moves)))
        if illegal and not (each.only and each.until_depth == 1 and len(illegal) == len(each.moves)):
            unused.setdefault("allow_moves" if each.only else "avoid_moves", []).extend(illegal)
    warnings = [
        QueryError(f"{field}: {listed(moves)} not used: illegal in all positions to analyse", field)
        for field, moves in unused.items()
    ]
    return tuple(found), warnings


def root_moves(game: Game, restrictions: Sequence[Restriction]) -> tuple[str, ...]:
    """Return the unrestricted moves of a position, as Game.legal_moves writes them; may be empty. Raises
    ValueError for a position that cannot be played."""
    legal = game.legal_moves()
    for restriction in restrictions:
        if restriction.of(game.turn) == game.turn:
            named = {_as_legal(game, legal, move) for move in restriction.moves}
            legal = [move for move in legal if (move in named) == restriction.only]
    return tuple(legal)


def core_rules(game: Game, restrictions: Sequence[Restriction]) -> list[CoreRule]:
    """Return the restrictions below the root, for Tree.set_move_rules."""
    return [
        (each.of(game.turn) == "white", each.moves, each.until_depth, each.only)
        for each in restrictions
        if each.until_depth > 1
    ]


def _restriction(field: str, entry: object, only: bool) -> Restriction:
    if not isinstance(entry, dict):
        raise QueryError(f"{field}: {shown(entry)} is not an object, and not all entries are moves", field)
    unknown = sorted(entry.keys() - {"moves", "player", "until_depth"})
    if unknown:
        raise QueryError(
            f"{field}: no such key: {shown(unknown[0])} (known are moves, player, until_depth)", field
        )
    player, depth = entry.get("player", ""), entry.get("until_depth", 1)
    if player not in ("", *PLAYERS):
        raise QueryError(f"{field}: player is white or black, not {shown(player)}", field)
    if isinstance(depth, bool) or not isinstance(depth, int | float) or not 1 <= depth <= MOST_DEPTH:
        raise QueryError(
            f"{field}: until_depth is a whole number from 1 to {MOST_DEPTH}, not {shown(depth)}", field
        )
    if depth != int(depth):
        raise QueryError(f"{field}: until_depth is a whole number, not {shown(depth)}", field)
    return Restriction(_moves(field, entry.get("moves")), player, int(depth), only)


def _moves(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_MOVES:
        raise QueryError(f"{field}: moves is a list of 1 to {MOST_MOVES} moves, not {shown(value)}", field)
    for move in value:
        if not isinstance(move, str) or not is_move(move):
            raise QueryError(f"{field}: {shown(move)} is no move, such as e2e4 or Nf3", field)
    return tuple(value)


def _in_uci(games: Sequence[Game], text: str) -> list[str]:
    """Return a move in UCI notation; for SAN, its meaning in each of the positions."""
    if uci := uci_of(text):
        return [uci]
    found: dict[str, None] = {}
    for game in games:
        with suppress(ValueError):
            found[read_move(game, text)] = None
    return list(found)


def _as_legal(game: Game, legal: Sequence[str], move: str) -> str:
    """Return a move as Game.legal_moves writes it, castling in either notation; unchanged if illegal."""
    if move in legal:
        return move
    after = game.copy()
    try:
        after.push_uci(move)
    except ValueError:
        return move
    return after.moves()[-1]

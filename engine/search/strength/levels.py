# SPDX-License-Identifier: GPL-3.0-or-later
"""Limited strength (UCI_LimitStrength, UCI_Elo, Skill Level), and HumanPlay for networks that imitate people.

A level searches few nodes and draws its move: from the policy if it searches one node, otherwise from the
visits, each to the power 1 / temperature. So its errors are moves that look good. Levels of people who
would not overlook it see a mate in one, and do not leave the queen en prise.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import exp, log
from random import Random
from typing import TYPE_CHECKING

from engine.search.named_openings import continuations
from engine.search.tablebases import NONE, open_tablebases

if TYPE_CHECKING:
    from engine._core import ChildInfo, Game
    from engine.options import Options
    from engine.search.limits import Limits

NETWORK = "wavefront-cpu"
"""Plays all levels: they are calibrated for it."""

LEAST_ELO, MOST_ELO = 800, 2800
FULL_SKILL = 20

TABLE: tuple[tuple[int, int, float], ...] = (
    (800, 1, 1.5),
    (1000, 1, 1.25),
    (1200, 1, 1.05),
    (1400, 1, 0.87),
    (1472, 1, 0.635),
    (1540, 1, 0.46),
    (1600, 1, 0.32),
    (1650, 1, 0.2),
    (1720, 6, 0.25),
    (1938, 16, 0.25),
    (2150, 42, 0.25),
    (2245, 64, 0.25),
    (2400, 122, 0.25),
    (2600, 240, 0.25),
    (2800, 600, 0.25),
)
"""Elo, nodes and temperature, measured by `benchmarks.strength.ladder` (docs/how-to/strength.md)."""

SEES_MATE_ELO, KEEPS_QUEEN_ELO = 1700, 1400
"""Elo from which a level always plays a mate in one, and never leaves its queen to be taken for nothing."""

BARE_KING = re.compile(r"[KQRB]{2,3}k|[kqrb]{2,3}K")
"""Men of an elementary mate, which HumanPlay and levels that see a mate play by the included tables. The
policy of one node wanders there: two bishops did not mate. Bishop and knight are left to the search."""

SACRIFICE_NODES = 50
"""Nodes of a search that may give its queen."""

BOOK_PLIES, BOOK_BREADTH, BOOK_POLICY = 10, 2.5, 0.02
"""A level plays the book of names up to a ply while its own draw is among fewer moves (the exponential of its
entropy), and only moves to which the network gives a share. People vary their openings; 1600 played 1. c4 in
12 of 12 games."""

REPERTOIRE_MOVES = 8
"""Moves of a game that HumanRepertoire decides."""


@dataclass(frozen=True, slots=True)
class Level:
    """How a move is chosen. nodes: of the search. temperature: of the draw. top_p: sum of the largest
    probabilities that the draw keeps. elo: None plays as the network does, without guards. mix: share of
    `second`, the policy of a second network by moves, which sums to 1.
    """

    nodes: int
    temperature: float
    top_p: float = 1.0
    elo: int | None = None
    mix: float = 0.0
    second: Mapping[str, float] = field(default_factory=dict)


def level_of(options: Options) -> Level | None:
    """Return the level that options ask for; None for full strength."""
    if options.limit_strength:
        return calibrated(options.elo)
    if options.skill_level < FULL_SKILL:
        return calibrated(LEAST_ELO + (MOST_ELO - LEAST_ELO) * options.skill_level // FULL_SKILL)
    if options.human_play:
        mix = options.human_mix if options.human_weights else 0.0
        return Level(1, options.human_temperature, options.human_top_p, mix=mix)
    return None


def calibrated(elo: int) -> Level:
    """Return the level of an Elo between rows of TABLE: temperatures linear, nodes on a logarithmic scale."""
    index = min(max(1, bisect_right([row[0] for row in TABLE], elo)), len(TABLE) - 1)
    (low, few, warm), (high, many, cold) = TABLE[index - 1], TABLE[index]
    share = (min(max(elo, low), high) - low) / (high - low)
    nodes = round(exp(log(few) + share * (log(many) - log(few))))
    return Level(nodes, warm + share * (cold - warm), elo=elo)


def with_network(options: Options) -> Options:
    """Return the options with the network that plays their level, if a level is asked for.

    Smart pruning is off: how many nodes it saves would depend on the clock, and so would the strength. The
    constants are those of the calibration, which had no tablebases. People have none, either.
    """
    level = level_of(options)
    if level is not None and not options.syzygy_path:
        options = replace(options, syzygy_path=NONE)
    if level is None or level.elo is None:
        return options
    return replace(
        options,
        weights=NETWORK,
        policy_head="",
        value_head="",
        smart_pruning_factor=0.0,
        network_constants=False,
    )


def with_second_network(options: Options) -> Options:
    """Return the options with the second network of HumanPlay."""
    return replace(options, weights=options.human_weights, policy_head="", value_head="")


def is_game_move(limits: Limits) -> bool:
    """Return True if a search may play a move of a game. Analysis is never weakened."""
    return not (limits.infinite or limits.mate is not None or limits.search_moves)


def for_repertoire(game: Game, options: Options) -> Game:
    """Return the game whose position a level sees: without history and counters if HumanRepertoire decides,
    so that the order of moves does not change the network's policy."""
    level = level_of(options)
    if level is None or level.elo is not None or not options.human_repertoire:
        return game
    if game.ply >= 2 * REPERTOIRE_MOVES:
        return game
    import chess

    position = chess.Board(game.fen(), chess960=game.chess960).epd(en_passant="legal")
    return type(game)(f"{position} 0 {game.ply // 2 + 1}", game.chess960)


def choose(level: Level, game: Game, children: Sequence[ChildInfo], options: Options, random: Random) -> str:
    """Return the move to play. children: root moves, best first, at least one. options: of the search."""
    elo = level.elo or 0
    if elo >= SEES_MATE_ELO and (
        mate := next((each.move for each in children if _mates(game, each.move)), None)
    ):
        return mate
    if (elo >= SEES_MATE_ELO or level.elo is None) and (move := _elementary_mate(game)):
        return move
    if level.elo is None and options.human_repertoire and game.ply < 2 * REPERTOIRE_MOVES:
        # The same position gets the same move in all games of a repertoire.
        random = Random(f"{options.human_repertoire} {game.fen().rsplit(' ', 2)[0]}")
    weights = _weights(level, children)
    if elo:
        weights = _from_book(game, children, weights) or weights
    move = _drawn(weights, random)
    # A deeper search knows when a queen is worth giving.
    if elo >= KEEPS_QUEEN_ELO and level.nodes < SACRIFICE_NODES and _hangs_queen(game, move):
        keeping = {each: weight for each, weight in weights.items() if not _hangs_queen(game, each)}
        return _drawn(keeping, random) if keeping else move
    return move


def _from_book(game: Game, children: Sequence[ChildInfo], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the book's moves by their number of named openings; none if the level's own draw is broad."""
    total = sum(weights.values())
    breadth = exp(-sum(each / total * log(each / total) for each in weights.values() if each))
    moves = game.moves()
    if len(moves) >= BOOK_PLIES or breadth >= BOOK_BREADTH or game.start_fen() != type(game)().fen():
        return {}
    known = continuations(moves)
    return {
        each.move: known[each.move] for each in children if known[each.move] and each.policy >= BOOK_POLICY
    }


def _weights(level: Level, children: Sequence[ChildInfo]) -> dict[str, float]:
    """Return the moves of the draw with their weights, the largest first; at least one move."""
    if level.nodes > 1 and (visits := sum(child.visits for child in children)):
        shares = {child.move: child.visits / visits for child in children}
    else:
        shares = {child.move: child.policy for child in children}
        if level.mix:
            shares = {
                move: (1 - level.mix) * share + level.mix * level.second.get(move, 0.0)
                for move, share in shares.items()
            }
    ordered = sorted(shares.items(), key=lambda each: -each[1])
    largest = ordered[0][1]
    if level.temperature <= 0 or largest <= 0:
        return {ordered[0][0]: 1.0}
    weights = {move: (share / largest) ** (1 / level.temperature) for move, share in ordered if share > 0}
    if level.top_p >= 1:
        return weights
    enough = level.top_p * sum(weights.values())
    kept: dict[str, float] = {}
    for move, weight in weights.items():
        kept[move] = weight
        enough -= weight
        if enough <= 0:
            break
    return kept


def _drawn(weights: Mapping[str, float], random: Random) -> str:
    (move,) = random.choices(list(weights), cum_weights=list(accumulate(weights.values())))
    return move


def _elementary_mate(game: Game) -> str | None:
    """Return the fastest move to mate a bare king; None if the position is another one, or no win."""
    men = re.sub("[^A-Za-z]", "", game.fen().partition(" ")[0])
    mine, theirs = (str.isupper, str.islower) if game.turn == "white" else (str.islower, str.isupper)
    if not BARE_KING.fullmatch("".join([*filter(mine, men), *filter(theirs, men)])):
        return None
    tables = open_tablebases("")
    plies: dict[str, int] = {}
    for move in game.legal_moves() if tables else ():
        after = game.copy()
        after.push_uci(move)
        if not after.legal_moves():
            plies |= {move: 0} if after.in_check else {}
        elif tables and tables.probe_wdl(after) == -2:
            plies[move] = abs(tables.probe_dtz(after) or 0)
    return min(plies, key=plies.__getitem__, default=None)


def _mates(game: Game, move: str) -> bool:
    after = game.copy()
    after.push_uci(move)
    return after.in_check and not after.legal_moves()


def _hangs_queen(game: Game, move: str) -> bool:
    """Return True if the opponent can take the queen after a move for less than a queen."""
    import chess

    board = chess.Board(game.fen(), chess960=game.chess960)
    mover = board.turn
    took_queen = board.piece_type_at(chess.parse_square(move[2:4])) == chess.QUEEN
    board.push_uci(move)
    queens = board.pieces(chess.QUEEN, mover)
    if not queens or took_queen:
        return False
    captures = [each for each in board.legal_moves if each.to_square in queens]
    for capture in captures:
        taker = board.piece_type_at(capture.from_square)
        board.push(capture)
        retaken = any(each.to_square == capture.to_square for each in board.legal_moves)
        board.pop()
        if not retaken or taker != chess.QUEEN:
            return True
    return False

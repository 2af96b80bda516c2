# SPDX-License-Identifier: GPL-3.0-or-later
"""Conversion between the types of python-chess and the engine's, as the UCI protocol would do it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import chess
from chess.engine import (
    INFO_PV,
    INFO_SCORE,
    BestMove,
    ConfigValue,
    Cp,
    EngineError,
    Info,
    InfoDict,
    Limit,
    Mate,
    Opponent,
    Option,
    PovScore,
    PovWdl,
    Wdl,
)

from engine.options import OPTIONS, Options
from engine.search.limits import Clock, Limits
from engine.search.report import Line, Report
from engine.search.scores import thousandths
from engine.settings.identity import ABOUT, ABOUT_TEXT, CLEAR_TREE, LOAD_TREE, SAVE_TREE
from protocol.settings.spec import Setting


def listed_options() -> list[Option]:
    """Return the options that the UCI program lists, each once: aliases are accepted, too."""
    options = [_option(setting, setting.title) for setting in OPTIONS]
    options.append(Option(CLEAR_TREE, "button", None, None, None, []))
    options += [Option(name, "string", "<empty>", None, None, []) for name in (SAVE_TREE, LOAD_TREE)]
    options.append(Option(ABOUT, "string", ABOUT_TEXT, None, None, []))
    return options


def _option(setting: Setting, name: str) -> Option:
    """Return a setting as UCI has it, where real numbers are strings."""
    default = setting.default
    if isinstance(default, bool):
        return Option(name, "check", default, None, None, [])
    if isinstance(default, int):
        return Option(name, "spin", default, int(setting.low), int(setting.high), [])
    text = setting.text(default)
    if setting.choices:
        return Option(name, "combo", text, None, None, list(setting.choices))
    return Option(name, "string", text or "<empty>", None, None, [])


def option_text(value: ConfigValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def opponent_option(opponent: Opponent | None) -> Mapping[str, ConfigValue]:
    """Return the option UCI_Opponent: title, rating, kind and name."""
    if opponent is None or not opponent.name:
        return {}
    kind = "computer" if opponent.is_engine else "human"
    words = (opponent.title or "none", str(opponent.rating or "none"), kind, opponent.name)
    return {"UCI_Opponent": " ".join(words)}


def position_of(board: chess.Board) -> tuple[str | None, list[str]]:
    """Return FEN, None if initial, and UCI moves of a board. A board with null moves has no history."""
    history = all(board.move_stack)
    root = board.root() if history else board
    fen = root.fen(shredder=board.chess960, en_passant="fen")
    moves = [move.uci() for move in board.move_stack] if history else []
    return None if fen == chess.STARTING_FEN else fen, moves


def search_limits(limit: Limit, turn: chess.Color) -> Limits:
    """Return the limits that python-chess would send to a UCI program. Raises EngineError."""
    clock = None
    if limit.white_clock is not None or limit.black_clock is not None:
        clock = Clock(
            white_ms=_milliseconds(limit.white_clock),
            black_ms=_milliseconds(limit.black_clock),
            white_increment_ms=round(1000 * (limit.white_inc or 0)),
            black_increment_ms=round(1000 * (limit.black_inc or 0)),
            moves_to_go=int(limit.remaining_moves or 0) or None,
        ).completed("white" if turn else "black")
    elif limit.white_inc is not None or limit.black_inc is not None:
        raise EngineError(f"{limit}: an increment needs white_clock or black_clock")
    return Limits(
        clock=clock,
        movetime_ms=_milliseconds(limit.time),
        nodes=None if limit.nodes is None else max(1, int(limit.nodes)),
        depth=None if limit.depth is None else max(1, int(limit.depth)),
        mate=None if limit.mate is None else max(1, int(limit.mate)),
    )


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(1000 * seconds))


def next_limit(limit: Limit, turn: chess.Color, seconds: float) -> Limit:
    """Return the limit of the next move, if this one took so long and the opponent's took no time."""

    def clock(left: float | None, increment: float | None, side: chess.Color) -> float | None:
        return None if left is None else left + (increment or 0.0) - (seconds if side == turn else 0.0)

    return replace(
        limit,
        white_clock=clock(limit.white_clock, limit.white_inc, chess.WHITE),
        black_clock=clock(limit.black_clock, limit.black_inc, chess.BLACK),
        remaining_moves=limit.remaining_moves - 1 if limit.remaining_moves else limit.remaining_moves,
    )


def best_move_of(report: Report, board: chess.Board) -> BestMove:
    """Return move and expected reply. Both are None after the end of the game."""
    moves = _variation(board, [move for move in (report.best_move, report.ponder) if move is not None])
    return BestMove(moves[0] if moves else None, moves[1] if len(moves) > 1 else None)


def _variation(board: chess.Board, moves: Iterable[str]) -> list[chess.Move]:
    after = board.copy(stack=False)
    return [after.push_uci(move) for move in moves]


def infos_of(report: Report, board: chess.Board, options: Options, selector: Info) -> list[InfoDict]:
    """Return a report in python-chess's form, as read from the UCI program: one dictionary per line.

    There is at least one; it is empty if `selector` is INFO_NONE.
    """
    if not selector:
        return [{}]
    if report.best_move is None:
        ended: InfoDict = {"depth": 0}
        if selector & INFO_SCORE:
            ended["score"] = PovScore(Mate(0) if board.is_check() else Cp(0), board.turn)
        return [ended]
    infos: list[InfoDict] = []
    for number, line in enumerate(report.lines, 1):
        info: InfoDict = {
            "depth": max(1, report.depth),
            "seldepth": max(1, report.selective_depth),
            "time": report.seconds,
            "nodes": line.visits if options.per_pv_counters else report.nodes,
            "hashfull": report.hashfull,
            "nps": report.nodes_per_second,
            "tbhits": report.tablebase_hits,
            "multipv": number,
        }
        if selector & INFO_SCORE:
            info["score"] = _score(line, report, options, board.turn)
        if options.show_wdl:
            info["wdl"] = PovWdl(Wdl(*thousandths(line.wdl)), board.turn)
        if selector & INFO_PV:
            info["pv"] = _variation(board, line.moves)
        infos.append(info)
    return infos


def _score(line: Line, report: Report, options: Options, turn: chess.Color) -> PovScore:
    if line.mate is not None:
        return PovScore(Mate(line.mate), turn)
    return PovScore(Cp(line.score(options.score_type, report.draw_score)), turn)

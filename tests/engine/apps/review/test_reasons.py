# SPDX-License-Identifier: GPL-3.0-or-later
"""Reasons of marks: a set of positions with the right ones, and a second implementation that confirms each.

reasons.jsonl has a position a line: `fen` and `moves` before the move that was `played`, the engine's `best`
line and its `reply`, what it proved `before` (mate, tables) and `after` (mate, tables), the pawns
that it lost (`fall`), and the `kinds` of the right reasons. The 47 before the last two are moves of games.
"""

import json
import re
from pathlib import Path
from typing import Any

import chess
import pytest

from engine._core import Game
from engine.apps.review.reasons import Known, MoveReason, reasons

CASES = [
    json.loads(line) for line in Path(__file__).with_name("reasons.jsonl").read_text("utf-8").splitlines()
]
VALUES = {"p": 1, "n": 3, "b": 3, "r": 5, "q": 9, "k": 0}
STEPS = {
    "r": [(0, 1), (0, -1), (1, 0), (-1, 0)],
    "b": [(1, 1), (1, -1), (-1, 1), (-1, -1)],
    "n": [(1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1)],
}
STEPS["q"] = STEPS["k"] = STEPS["r"] + STEPS["b"]
PIECES = {"pawn": "p", "knight": "n", "bishop": "b", "rook": "r", "queen": "q", "king": "k"}


def told(case: dict[str, Any]) -> list[MoveReason]:
    board = chess.Board(case["fen"])
    for move in case["moves"].split():
        board.push_uci(move)
    played = chess.Move.from_uci(case["played"])
    known = Known(*case["before"]), Known(*case["after"])
    return reasons(board, played, case["best"].split(), case["reply"].split(), *known, case["fall"])


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_mistake_has_the_reasons_of_the_set(case: dict[str, Any]) -> None:
    assert [reason.kind for reason in told(case)] == case["kinds"]


# The second implementation: squares as (file, rank), positions by the engine's own rules.


def squares(game: Game) -> dict[tuple[int, int], str]:
    found = {}
    for down, row in enumerate(game.fen().split()[0].split("/")):
        file = 0
        for letter in row:
            if letter.isdigit():
                file += int(letter)
            else:
                found[file, 7 - down] = letter
                file += 1
    return found


def square(name: str) -> tuple[int, int]:
    return ord(name[0]) - 97, int(name[1]) - 1


def attacked(pieces: dict[tuple[int, int], str], origin: tuple[int, int]) -> set[tuple[int, int]]:
    """Return the occupied squares that a piece attacks."""
    piece = pieces[origin]
    kind, found = piece.lower(), set()
    if kind == "p":
        up = 1 if piece.isupper() else -1
        return {(origin[0] + side, origin[1] + up) for side in (-1, 1)} & pieces.keys()
    for x, y in STEPS[kind]:
        for far in range(1, 2 if kind in "nk" else 8):
            target = origin[0] + x * far, origin[1] + y * far
            if target in pieces:
                found.add(target)
                break
    return found


def material(game: Game, white: bool) -> int:
    return sum(
        VALUES[letter.lower()] * (1 if letter.isupper() == white else -1) for letter in squares(game).values()
    )


def positions(case: dict[str, Any], reason: MoveReason) -> tuple[Game, list[Game], list[str]]:
    """Return the position before the mistake, those of the reason's line, and the line."""
    start = Game(case["fen"])
    for move in case["moves"].split():
        start.push_uci(move)
    line = (case["best"] if reason.missed else case["reply"]).split()
    games = [start.copy()]
    if not reason.missed:
        games[0].push_uci(case["played"])
    for move in line:
        games.append(games[-1].copy())
        games[-1].push_uci(move)
    return start, games, line


def confirmed(case: dict[str, Any], reason: MoveReason) -> bool:
    start, games, line = positions(case, reason)
    kind = reason.kind.removeprefix("missed ")
    attacker = games[0].turn == "white"
    moved = square(line[0][2:4])
    pieces, earlier = squares(games[1]), squares(games[0])
    named = {square(name) for name in re.findall(r"on ([a-h][1-8])", reason.text)}
    if kind == "mate":
        number = case["before" if reason.missed else "after"][0]
        shown = games[2 * number - 1] if 2 * number - 1 < len(games) else None
        return f"mate in {number}" in reason.text and (
            shown is None or (not shown.legal_moves() and shown.in_check)
        )
    if kind == "stalemate":
        return any(not game.legal_moves() and not game.in_check for game in games[1:])
    if kind == "repetition":
        return any(game.repetitions >= 2 for game in games[1:])
    if kind == "tablebase":
        return bool(case["before"][1] > -case["after"][1])
    if kind == "promotion":
        return any(len(move) == 5 for move in line[::2])
    gains = [material(game, attacker) - material(start, attacker) for game in games[1:]]
    if max(gains[-2:]) <= 0:  # A line may end with one capture of an exchange.
        return False
    if kind in ("capture", "en prise", "hanging piece", "hanging pawn"):
        taken = earlier[moved]
        return (taken.isupper() != attacker) and any(
            PIECES[word] == taken.lower() for word in PIECES if f"the {word} on" in reason.text
        )
    if kind == "fork":
        return (
            named | {at for at in attacked(pieces, moved) if pieces[at] in "kK"} <= attacked(pieces, moved)
            and len(attacked(pieces, moved) & {at for at in pieces if pieces[at].isupper() != attacker}) >= 2
        )
    if kind in ("attack", "trapped piece", "pin"):
        return named <= attacked(pieces, moved) or any(
            named <= attacked(pieces, at) for at in pieces if pieces[at].isupper() == attacker
        )
    if kind == "skewer":
        enemies = {at for at in attacked(pieces, moved) if pieces[at].isupper() != attacker}
        front = next(at for at in enemies if at in named or pieces[at] in "kK")
        without = {at: piece for at, piece in pieces.items() if at != front}
        return any(at in named for at in attacked(without, moved))
    if kind.startswith("discovered"):
        sliders = [at for at in named if at in pieces and pieces[at].isupper() == attacker]
        return any(attacked(pieces, at) - attacked(earlier, at) for at in sliders)
    return False


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_each_reason_is_confirmed_by_a_second_implementation(case: dict[str, Any]) -> None:
    for reason in told(case):
        assert confirmed(case, reason), reason

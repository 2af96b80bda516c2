# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts of labelled games: from a book, after random plies, or with few pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import chess

from engine._core import Game
from engine.apps.games import Opening
from training.label.settings import LabelSettings

PIECES = "PPPPRRNBQ"
"""Pieces other than kings, each letter equally likely."""


@dataclass(frozen=True, slots=True)
class Start:
    """game: not over yet. must_be_level: a random start, which is drawn again if lost for one side."""

    game: Game
    must_be_level: bool


def draw_start(settings: LabelSettings, openings: Sequence[Opening], random: Random) -> Start:
    """Return a random position to start a game from."""
    chance = random.random()
    if chance < settings.book_share:
        opening = random.choice(openings)
        game = Game(opening.fen)
        for move in opening.moves:
            game.push_uci(move)
        return Start(Game(game.fen()), must_be_level=False)
    if chance < settings.book_share + settings.endgame_share:
        return Start(random_endgame(settings.endgame_men, random), must_be_level=False)
    return Start(random_opening(settings.random_plies, random), must_be_level=True)


def random_opening(most_plies: int, random: Random) -> Game:
    """Return the initial position after 0 to most_plies random plies."""
    plies = random.randint(0, most_plies)
    while True:
        game = Game()
        for _ in range(plies):
            game.push_uci(random.choice(game.legal_moves()))
            if game.result()[0] != "undecided":
                break
        else:
            return Game(game.fen())


def random_endgame(most_men: int, random: Random) -> Game:
    """Return a random legal position with 3 to `most_men` pieces, kings included, that is not over."""
    while True:
        men = [
            "K",
            "k",
            *(random.choice(PIECES + PIECES.lower()) for _ in range(random.randint(1, most_men - 2))),
        ]
        squares = random.sample(range(64), len(men))
        board = chess.BaseBoard.empty()
        for square, man in zip(squares, men, strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(man))
        if board.pawns & chess.BB_BACKRANKS:
            continue
        try:
            game = Game(f"{board.board_fen()} {random.choice('wb')} - - 0 1")
        except ValueError:  # for example, the side to move could capture the king
            continue
        if game.result()[0] == "undecided":
            return game

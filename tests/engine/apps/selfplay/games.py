# SPDX-License-Identifier: GPL-3.0-or-later
"""Games for the tests of training data, played by a search with the instant random evaluator."""

from random import Random

from engine._core import Batch, Game, SearchParams, Tree
from engine.apps.shards.training_record import Encoding, GameEnd, Records, finish_game, make_record

RESULTS = {"white_won": 1, "black_won": -1, "draw": 0}


def random_game(seed: int, plies: int, *, start: Game | None = None) -> Game:
    """A game after some random moves that do not end it."""
    random = Random(seed)
    game = start.copy() if start is not None else Game()
    while len(game.moves()) < plies:
        game.push_uci(random.choice(game.legal_moves()))
        if game.result()[0] != "undecided":
            game.pop()
    return game


def played_game(
    input_format: int, *, start: Game | None = None, seed: int = 1, noise: float = 0.0
) -> Records:
    """The records of a whole game, in which moves are drawn at random after searches of six nodes."""
    random = Random(seed)
    params = SearchParams()
    params.tree_bytes, params.cache_bytes, params.input_format = 16 << 20, 1 << 20, input_format
    params.sticky_endgames = params.two_fold_draws = False
    tree, batch = Tree(params), Batch(4)
    game = start.copy() if start is not None else Game()
    encoding = Encoding(input_format)
    records: list[Records] = []
    white_to_move: list[bool] = []
    while game.result()[0] == "undecided":
        tree.clear()
        tree.set_position(game)
        if noise:
            tree.add_root_noise(noise, 0.3, random.getrandbits(64))
        while (missing := 6 - tree.root_info().visits) > 0:
            tree.collect(batch, min(4, missing), missing)
            tree.apply_random(batch)
        children = tree.children()
        move = random.choice([child.move for child in children])
        records.append(make_record(game, encoding, tree.root_info(), children, move))
        white_to_move.append(game.turn == "white")
        game.push_uci(move)
    return finish_game(records, white_to_move, GameEnd(RESULTS[game.result()[0]]))

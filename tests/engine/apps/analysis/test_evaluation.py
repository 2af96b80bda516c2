# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions without a search (`nodes` 0): the network's output, in batches next to searches."""

import json
import os
import signal
from typing import Any

import numpy as np
import pytest

from engine._core import Game
from engine.apps.analysis.evaluation import outputs
from engine.evaluation.errors import PipelineError
from engine.evaluation.link.encoding import encode_games
from protocol.batch import EvaluationBatch
from tests.engine.apps.analysis.recording import Conversation, scheduler

GAME = ["e2e4", "e7e5", "g1f3", "b8c6"]


def test_nodes_0_returns_the_networks_output_alone(talk: Conversation) -> None:
    answer = talk.ask(id="a", moves=GAME, nodes=0)
    head = {"id", "turn", "during_search", "fen", "key", "side_to_move"}
    assert answer.keys() == head | {"q", "wdl", "moves_left", "policy", "logits"}
    searched = talk.ask(id="a", moves=GAME, nodes=1, include_policy=True)
    assert answer["q"] == pytest.approx(searched["root"]["network"]["q"], abs=1e-5)
    assert answer["wdl"] == pytest.approx(searched["root"]["network"]["wdl"], abs=1e-5)
    assert answer["policy"] == pytest.approx(searched["policy"], abs=1e-4)
    assert sum(answer["policy"].values()) == pytest.approx(1, abs=1e-5)
    assert answer["logits"].keys() == answer["policy"].keys()


def test_results_are_for_the_side_that_is_asked_for(talk: Conversation) -> None:
    black = talk.ask(id="a", moves=["e2e4"], nodes=0)
    white = talk.ask(id="a", moves=["e2e4"], nodes=0, point_of_view="white")
    assert (white["q"], white["wdl"]) == (-black["q"], black["wdl"][::-1])


def test_a_named_network_and_history_fill_are_used(talk: Conversation) -> None:
    (network,) = talk.ask(id="n", action="query_networks")["networks"]
    fen = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
    usual = talk.ask(id="a", fen=fen, nodes=0)
    assert talk.ask(id="a", fen=fen, nodes=0, network=network["content_hash"])["q"] == usual["q"]
    assert "error" in talk.ask(id="a", nodes=0, network="unheard of")
    assert talk.ask(id="a", fen=fen, nodes=0, options={"history_fill": "no"})["q"] != usual["q"]


def test_endless_searches_do_not_delay_it() -> None:
    with scheduler(searches=1) as made:
        talk = Conversation(made)
        for number in range(3):
            talk.say(id=str(number), infinite=True)
        assert "q" in talk.ask(id="a", nodes=0, priority=-9)
        talk.scheduler.leave(talk.client)


@pytest.mark.integration
def test_many_positions_are_evaluated_in_few_batches() -> None:
    with scheduler(searches=1) as made:
        talk = Conversation(made)
        turns = list(range(1000))
        shuffle = ["g1f3", "g8f6", "f3g1", "f6g8"] * 250
        talk.say(id="game", moves=shuffle, analyze_turns=turns, nodes=0)
        assert sorted(talk.client.next()["turn"] for _ in turns) == turns
        assert made.pool.statistics().mean_batch > 50


def test_queries_that_wait_are_limited() -> None:
    with scheduler(max_queued=5) as made:
        talk = Conversation(made)
        answer = talk.ask(id="a", moves=[*GAME, "f1b5"], analyze_turns=[0, 1, 2, 3, 4, 5], nodes=0)
        assert "too many" in answer["error"]


def test_a_client_is_reported_when_all_is_answered(talk: Conversation) -> None:
    talk.say(id="game", moves=GAME, analyze_turns=[0, 1, 2, 3, 4], nodes=0)
    talk.scheduler.end(talk.client)
    assert talk.client.is_done.wait(60)
    assert talk.client.answers.qsize() == 5


@pytest.mark.integration
def test_positions_are_sent_again_when_the_evaluator_is_lost() -> None:
    with scheduler(own=True) as made:
        talk = Conversation(made)
        talk.ask(id="first", nodes=0)
        for number in range(2000):
            talk.say(id=str(number), moves=GAME, nodes=0)
            if number == 1000:
                os.kill(made.evaluator_pids()[0], signal.SIGKILL)
        found = [talk.client.next() for _ in range(2000)]
        assert all("q" in answer for answer in found)


def test_output_that_is_not_a_number_is_an_error() -> None:
    games = [Game()]
    batch, _ = encode_games(games, input_format=1)
    logits = np.full(20, np.nan, np.float32)
    found = EvaluationBatch(logits, np.array([[1, 0, 0]], np.float32), np.zeros(1, np.float32))
    with pytest.raises(PipelineError, match="not a number"):
        outputs(games, batch, found)


def test_outputs_of_a_batch_are_those_of_its_positions() -> None:
    random = np.random.default_rng(1)
    fens = [None, "7k/6Q1/6K1/8/8/8/8/8 b - - 0 1", "4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1"]
    games = [Game(fen) for fen in fens]
    batch, _ = encode_games(games, input_format=1)
    logits = random.normal(size=len(batch.moves)).astype(np.float32)
    wdl = random.dirichlet([1, 1, 1], 3).astype(np.float32)
    found = outputs(games, batch, EvaluationBatch(logits, wdl, np.ones(3, np.float32)))
    rest: list[Any] = logits.tolist()
    for game, output, shares in zip(games, found, wdl, strict=True):
        own = np.array([rest.pop(0) for _ in game.legal_moves()])
        policy = np.exp(own) / np.exp(own).sum()
        assert output["logits"] == pytest.approx(dict(zip(game.legal_moves(), own, strict=True)), abs=1e-6)
        assert [*output["policy"].values()] == pytest.approx(policy.tolist(), abs=1e-6)
        assert output["q"] == pytest.approx(shares[0] - shares[2], abs=1e-6)
    json.dumps(found)

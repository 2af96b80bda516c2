# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several evaluators gets the next request, with upstreams that obey."""

from dataclasses import dataclass
from typing import Any, cast

import pytest

from engine.evaluation.link.process import NetworkKey
from engine.evaluation.spread.routing import LARGE_REQUEST, LEAST_SHARED, best_offer
from engine.evaluation.spread.upstream import Offer
from protocol.wire.messages import NetworkInfo

KEY: NetworkKey = ("", "", "")


@dataclass
class Upstream:
    """An evaluator that computes so many positions per second and has so many to do."""

    positions_per_second: float
    busy_with: int = 0

    def rate(self, key: NetworkKey) -> float:
        return self.positions_per_second

    def in_flight(self, key: NetworkKey) -> int:
        return self.busy_with

    def finish_ms(self, key: NetworkKey, positions: int) -> float:
        return 1000 * (self.busy_with + positions) / self.positions_per_second


def offer(upstream: Upstream, most: int = 1024) -> Offer:
    return Offer(cast(Any, upstream), NetworkInfo("net", "hash", 1, recommended_batch=64), "hash", most)


def chosen(offers: list[Offer], waiting: int, first: int = 8) -> tuple[int, int]:
    """The index of the evaluator, and the positions of a full request."""
    best, full = best_offer(offers, KEY, waiting, first)
    return offers.index(best), full


@pytest.mark.parametrize(
    ("busy", "waiting", "expected"),
    [
        ((0, 0), 400, (1, 75)),  # a quarter of three quarters
        ((0, 0), 40, (1, 30)),  # its share of few
        ((0, 0), 8, (1, LEAST_SHARED)),
        ((0, 300), 100, (0, 64)),  # the other one would take longer
        ((100, 150), 100, (1, 65)),
    ],
)
def test_the_one_that_answers_first_gets_its_share(
    busy: tuple[int, int], waiting: int, expected: tuple[int, int]
) -> None:
    assert chosen([offer(Upstream(1000, busy[0])), offer(Upstream(3000, busy[1]))], waiting) == expected


def test_one_alone_gets_all_that_it_recommends() -> None:
    assert chosen([offer(Upstream(1000))], 10) == (0, 64)
    assert chosen([offer(Upstream(1000, 1000))], 600) == (0, 400)
    assert chosen([offer(Upstream(1000, 9000))], 9000) == (0, LARGE_REQUEST)


def test_batch_goes_to_the_accepting_evaluator_when_indivisible() -> None:
    offers = [offer(Upstream(9000), most=16), offer(Upstream(1000))]
    assert chosen(offers, 100, first=32)[0] == 1
    assert chosen(offers, 100, first=16)[0] == 0

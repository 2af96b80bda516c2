# SPDX-License-Identifier: GPL-3.0-or-later
"""The choice of the evaluator for a pool's next request, and the size of that request."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from engine.evaluation.link.process import NetworkKey
from engine.evaluation.spread.upstream import Offer

ENOUGH_REQUESTS = 3
"""Full requests in flight, two computing and one queued, beyond which positions wait until they fill another
one. A full request has the recommended batch, or a quarter of all positions if that is more, up to
LARGE_REQUEST."""

WORTH_SENDING = 128
"""Positions from which on a request is worth its cost while another one is in flight. Several processes on
one fast evaluator have few positions each. If they sent these at once, the evaluator's one I/O thread would
become the bottleneck."""

LARGE_REQUEST = 512
"""Positions beyond which requests are not larger unless the recommended batch is. The evaluator merges them.
A process needs some 8 ms for the answer of 512 positions, while others must keep the evaluator busy."""

LEAST_SHARED = 16
"""Minimum positions of a request after they are divided among several evaluators."""


def best_offer(offers: Sequence[Offer], key: NetworkKey, waiting: int, first: int) -> tuple[Offer, int]:
    """Return the evaluator that would answer the next request first, and its size of a full request.

    waiting: queued positions. first: size of the first batch. A full request has the recommended batch, or a
    quarter of the evaluator's share of all positions if larger. It has at most that share.
    """
    if len(offers) == 1:
        return offers[0], _full(offers[0], waiting + offers[0].upstream.in_flight(key))
    total = waiting + sum(offer.upstream.in_flight(key) for offer in offers)
    able = [offer for offer in offers if offer.max_batch >= first] or offers
    rates = [offer.upstream.rate(key) for offer in able]
    best: tuple[float, Offer, int] | None = None
    for offer, rate in zip(able, rates, strict=True):
        share = ceil(total * rate / sum(rates))
        full = min(_full(offer, share), max(LEAST_SHARED, share))
        finish = offer.upstream.finish_ms(key, min(waiting, full))
        if best is None or finish < best[0]:
            best = finish, offer, full
    assert best is not None
    return best[1:]


def _full(offer: Offer, total: int) -> int:
    """Return the size of a full request if there are `total` positions."""
    return max(1, min(max(offer.network.recommended_batch, _part(total)), offer.max_batch))


def _part(total: int) -> int:
    return min(total // (ENOUGH_REQUESTS + 1), LARGE_REQUEST)


def had_better_wait(waiting: int, in_flight: int, full: int) -> bool:
    """Return True if positions for less than a full request should wait for more.

    Half of all positions never wait; the other half keeps the device busy meanwhile.
    """
    if in_flight >= ENOUGH_REQUESTS * full:
        return True
    total = waiting + in_flight
    # Searches that are answered together ask together again, so requests would keep the size they once had.
    return in_flight > 0 and waiting < min(full, max(WORTH_SENDING, _part(total)), total // 2)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several evaluators gets the next request of a pool, and how large that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Generic, TypeVar

from engine.evaluation.balancing.upstream import PooledRequest, Upstream
from engine.evaluation.connection.process import NetworkKey

if TYPE_CHECKING:
    from protocol.messages import NetworkInfo

ENOUGH_REQUESTS = 3
"""With so many full requests on their way, two at work and one waiting, more positions wait here until they
fill another one. Full is what the evaluator recommends, or a quarter of all positions if that is more."""

WORTH_SENDING = 128
"""Positions for which a request is worth its cost while another one is in flight. Several processes on one
fast evaluator have few positions each. Sent as they are ready, they would give its one I/O thread more to do
with requests than the device has with positions."""

LEAST_SHARED = 16
"""Where several evaluators share what there is, none is sent less than so many positions for that reason."""

R = TypeVar("R", bound=PooledRequest)


@dataclass(slots=True, eq=False)
class Offer(Generic[R]):
    """An evaluator that serves a network. network: as it describes it. max_batch: positions of its largest
    request."""

    upstream: Upstream[R]
    network: NetworkInfo
    max_batch: int


def best_offer(offers: Sequence[Offer[R]], key: NetworkKey, waiting: int, first: int) -> tuple[Offer[R], int]:
    """The evaluator that would answer the next request first, and how many positions make a full one there.

    waiting: positions that wait. first: of these in one piece. Full is what the evaluator recommends, or a
    quarter of its share of all positions if that is more; but where they are few, its share of these.
    """
    total = waiting + sum(offer.upstream.in_flight(key) for offer in offers)
    if len(offers) == 1:
        return offers[0], _full(offers[0], total)
    able = [offer for offer in offers if offer.max_batch >= first] or offers
    rates = [offer.upstream.rate(key) for offer in able]
    best: tuple[float, Offer[R], int] | None = None
    for offer, rate in zip(able, rates, strict=True):
        share = ceil(total * rate / sum(rates))
        full = min(_full(offer, share), max(LEAST_SHARED, share))
        finish = offer.upstream.finish_ms(key, min(waiting, full))
        if best is None or finish < best[0]:
            best = finish, offer, full
    assert best is not None
    return best[1:]


def _full(offer: Offer[R], total: int) -> int:
    """Positions of a full request, of so many."""
    quarter = total // (ENOUGH_REQUESTS + 1)
    return max(1, min(max(offer.network.recommended_batch, quarter), offer.max_batch))


def had_better_wait(waiting: int, in_flight: int, full: int) -> bool:
    """Whether positions, less than a full request, had better wait for more while others are in flight.

    Half of all there are never wait: the other half keeps the device busy meanwhile.
    """
    if in_flight >= ENOUGH_REQUESTS * full:
        return True
    return in_flight > 0 and waiting < min(full, WORTH_SENDING, (waiting + in_flight) // 2)

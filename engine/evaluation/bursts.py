# SPDX-License-Identifier: GPL-3.0-or-later
"""Bursts: what a search does with its evaluator, without the interpreter, for some milliseconds at a time.

The core (engine/core/exchange) takes answers, collects and sends; between two bursts Python looks at limits,
reports and `stop`. Only the ordinary case is the core's: whatever else comes is left for `Requests.receive`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from engine._core import Batch, BatchRule, Tree

if sys.platform == "linux":
    from engine._core import Bursts

if TYPE_CHECKING:
    from protocol._core import Stream
    from protocol.client import EvaluatorClient
    from protocol.messages import Priority

BurstEnd = Literal["time", "look", "idle", "silence", "other"]
"""Why a burst has ended. time: its time is over. look: there are so many visits, or such a depth, that
somebody has to look at the search. idle: nothing is in flight any more, and nothing was found to send.
silence: nothing came for as long as it may wait. other: somebody has to receive what comes next."""


@dataclass(frozen=True, slots=True)
class BurstLimits:
    """How far a burst goes. Times are perf_counter seconds.

    until: after an answer that comes then or later it ends. patience: so long at most it waits. hard: what is
    sent has to be back by then; None: no such time. nodes: so many visits may there be in all, or playouts if
    `nodes_as_playouts`; None: any number. look_at: visits of the root, and depth: mean depth, with which
    somebody has to look at the search.
    """

    rule: BatchRule
    until: float
    patience: float
    hard: float | None
    nodes: int | None
    nodes_as_playouts: bool
    look_at: int
    depth: float


class BurstRunner:
    """Runs the bursts of one search and keeps the books of its batches.

    target_ms: latency that its requests ask for; None for that of their class. evaluations, batches: sent in
    the last burst.
    """

    def __init__(self, tree: Tree, priority: Priority, target_ms: float | None = None) -> None:
        self._tree = tree
        self._bursts = Bursts(priority, target_ms)

    @property
    def evaluations(self) -> int:
        return self._bursts.evaluations

    @property
    def batches(self) -> int:
        return self._bursts.batches

    def run(
        self,
        client: EvaluatorClient,
        stream: Stream,
        sent: dict[int, Batch],
        spare: list[Batch],
        limits: BurstLimits,
    ) -> BurstEnd:
        """One burst. stream: the client's. sent: batches in flight, by the number of their request; it and
        `spare` are changed to what they are afterwards."""
        before = list(sent)
        now = perf_counter()
        try:
            return self._bursts.run(
                self._tree,
                stream,
                limits.rule,
                network=client.network.name,
                content_hash=client.network.content_hash,
                next_id=client.next_id,
                sent=sent,
                spare=spare,
                until=limits.until - now,
                patience=limits.patience - now,
                hard=None if limits.hard is None else limits.hard - now,
                nodes=limits.nodes,
                nodes_as_playouts=limits.nodes_as_playouts,
                look_at=limits.look_at,
                depth=limits.depth,
            )
        finally:  # Ctrl-C in the main thread comes as soon as the core returns.
            client.exchanged(
                [identity for identity in before if identity not in sent],
                {identity: (batch.size, batch.move_count) for identity, batch in sent.items()},
                self._bursts.next_id,
                heard=self._bursts.answers > 0,
            )

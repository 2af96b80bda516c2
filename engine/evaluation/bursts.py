# SPDX-License-Identifier: GPL-3.0-or-later
"""Bursts: the core runs a search's evaluator calls without the interpreter, for some milliseconds per call.

The core (engine/core/exchange) applies results, collects and sends batches. Between two bursts Python checks
limits, reports and `stop`. The core handles only results; it leaves other messages to `Requests.receive`.
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
"""Why a burst ended. time: its time is over. look: the visits or the depth require a check of the search.
idle: nothing is in flight, and there is nothing to send. silence: no message within the longest wait. other:
Python must receive the next message."""


@dataclass(frozen=True, slots=True)
class BurstLimits:
    """Limits of a burst. Times are perf_counter seconds.

    until: the burst ends with the first answer from then on. patience: end of the longest wait. hard:
    deadline for the answers to what is sent; None: none. nodes: maximum visits in all, or playouts if
    `nodes_as_playouts`; None: unlimited. look_at, depth: root visits and mean depth that require a check.
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
    """Run the bursts of one search and keep track of its batches.

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
        """Run one burst. stream: the client's. sent: batches in flight by request number. `sent` and `spare`
        are updated in place."""
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
        finally:  # Ctrl-C raises in the main thread as soon as the core returns.
            client.exchanged(
                [identity for identity in before if identity not in sent],
                {identity: (batch.size, batch.move_count) for identity, batch in sent.items()},
                self._bursts.next_id,
                heard=self._bursts.answers > 0,
            )

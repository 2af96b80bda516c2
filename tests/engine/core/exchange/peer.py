# SPDX-License-Identifier: GPL-3.0-or-later
"""The other end of a search's connection, which answers well or badly, as a test wants."""

import math
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from engine._core import Batch, BatchRule, Exchange, Game, Tree
from engine.evaluation.link.encoding import position_batch
from evaluator.backends.reference.random import random_evaluation
from protocol._core import Hub, Stream
from protocol.wire.codec import decode_request, encode, encode_evaluate
from protocol.wire.messages import Evaluate, Result
from tests.engine.core.tree.search_helpers import MIDDLEGAME, new_tree

WAIT_S = 60.0

LIMITS = {"frame": 4_000_000, "message": 9_000_000, "parts": 8}

Frames = Sequence[Any]

Answer = Callable[[Evaluate], Sequence[Frames] | None]
"""The messages that answer a request; None ends the connection."""


def plain(request: Evaluate) -> list[Frames]:
    """What an evaluator with the `random` backend answers."""
    evaluation = random_evaluation(request.batch)
    return [encode(Result(request.id, evaluation, 0.1, 0.2, len(request.batch), "peer"))]


class Peer:
    """Listens at a path and answers in a thread of its own. Use it as a context manager.

    headers: of the requests, as they came.
    """

    def __init__(self, path: Path, answer: Answer = plain) -> None:
        self.headers: list[bytes] = []
        self._answer = answer
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(8)
        self._hub = Hub(**LIMITS, kept=20_000_000, connections=8)
        self._hub.listen(listener.detach())
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._hub.close(linger_ms=0)

    def _serve(self) -> None:
        while not self._ending.is_set():
            self._hub.wait(10)
            while (found := self._hub.take()) is not None:
                number, frames = found
                self.headers.append(bytes(frames[0]))
                request = decode_request(frames)
                assert isinstance(request, Evaluate)
                messages = self._answer(request)
                if messages is None:
                    self._hub.hang_up(number)
                for message in messages or ():
                    self._hub.send(number, message)


class Player:
    """A tree, its connection, and its batches: what a search's bursts work on."""

    def __init__(
        self, path: Path, *, network: str = "net", in_flight: int = 2, fen: str = MIDDLEGAME
    ) -> None:
        self.tree: Tree = new_tree(Game(fen))
        self.stream = Stream(str(path).encode(), **LIMITS)
        self.answers = 0
        """Of the last burst."""
        self.content_hash = "hash"
        rule = BatchRule(
            best=16,
            curve=[],
            largest=32,
            filled=24,
            large_tree=64,
            share=16,
            least=2,
            together=True,
            factor=0.0,
            in_flight=in_flight,
            second=4,
        )
        self.network = network
        self.sent: dict[int, Batch] = {}
        self._exchange = Exchange(self.tree, rule, "play")
        self._next_id = 1

    def begin(self) -> None:
        """Send the first batch, as the interpreter does."""
        batch = Batch(32)
        self.tree.collect(batch, 1)
        frames: list[Any] = encode_evaluate(self._next_id, position_batch(batch), "play", None, self.network)
        assert self.stream.send(frames)
        self.sent[self._next_id] = batch
        self._next_id += 1

    def run(
        self,
        *,
        until: float = WAIT_S,
        patience: float = WAIT_S,
        target_ms: float | None = None,
        hard: float | None = None,
        nodes: int | None = None,
        look_at: int = 1 << 40,
        depth: float = math.inf,
    ) -> str:
        """One burst; why it has ended. Times are seconds from now."""
        now, exchange = perf_counter(), self._exchange
        exchange.lend(
            self.stream,
            network=self.network,
            content_hash=self.content_hash,
            next_id=self._next_id,
            target_ms=target_ms,
            sent=self.sent,
        )
        try:
            return exchange.run(
                until=now + until,
                patience=now + patience,
                hard=None if hard is None else now + hard,
                nodes=nodes,
                nodes_as_playouts=False,
                look_at=look_at,
                depth=depth,
                interrupt=-1,
            )
        finally:
            self.answers, self._next_id = exchange.answers, exchange.next_id
            self.sent = exchange.take_back()

    def visits(self) -> int:
        return self.tree.root_info().visits

    def close(self) -> None:
        self.stream.close()

# SPDX-License-Identifier: GPL-3.0-or-later
"""The conformance cases for a client, and the report of its faults."""

import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

from protocol.common.keys.pairs import KeyPair
from protocol.wire.compression import offered
from tests.protocol.kit.evaluator import OpenRequest, ScriptedEvaluator

ROUNDS = 3
"""Requests answered one by one, and rounds of answers in reversed order."""

TOGETHER_S = 1.0
"""Seconds to wait for a second request in flight."""

DRAINING_S = 0.5
"""Seconds that the evaluator drains."""

MOST_WHILE_DRAINING = 20
"""Maximum messages in DRAINING_S from a client that does not busy-wait."""

PASSING_CODE = "overloaded"
"""The error after which every client must retry."""

ENDING_CODES = (
    "device_failed",
    "deadline_exceeded",
    "a_code_of_tomorrow",
    "not_ready",
    "unknown_network",
    "too_large",
    "duplicate_id",
    "bad_request",
    "not_allowed",
)
"""Errors after which a client may exit or use another evaluator.
Either a request that it needs failed, or the client is at fault, as with `not_ready` after a welcome."""


class SilentError(Exception):
    """The client did not act within the patience."""


class Walk:
    """Runs all cases with one client.

    address: where to listen. patience_s: timeout for each action of the client. out: receives the name of
    each case. faults: the client's faults and how often each occurred. compressed: number of compressed
    requests.
    Every other evaluator, starting with the first, offers compression.
    """

    def __init__(self, address: str, patience_s: float, out: TextIO, pair: KeyPair | None = None) -> None:
        """pair: the evaluator's key pair; None requires no keys."""
        self._pair = pair
        self.faults: Counter[str] = Counter()
        self.compressed = 0
        self._evaluators = 0
        self._patience_s = patience_s
        self._out = out
        self._case = "welcome"
        self._evaluator = self._start(address)
        self.address = self._evaluator.address

    def run(self) -> Counter[str]:
        """Run all cases and return the faults in order of detection."""
        cases: dict[str, Callable[[], None]] = {
            "welcome": self._welcome,
            "one answer after the other": self._one_by_one,
            "answers out of order": self._out_of_order,
            f"error {PASSING_CODE}": self._overload,
            "a restart": self._restart,
            "a restart with requests in flight": self._loss,
            "draining": self._draining,
            "errors that may end a client": self._end,
        }
        try:
            for self._case, case in cases.items():
                print(self._case, file=self._out, flush=True)
                case()
        except SilentError as silent:
            self._fault(f"nothing came for {self._patience_s:g} s: {silent}")
        finally:
            self._end_evaluator()
        return self.faults

    def _start(self, address: str) -> ScriptedEvaluator:
        self._evaluators += 1
        compression = offered() if self._evaluators % 2 else ()
        return ScriptedEvaluator(address, self._fault, compression, self._pair)

    def _fault(self, text: str) -> None:
        self.faults[f"{self._case}: {text}"] += 1

    def _wait(self, enough: Callable[[], bool], missing: str) -> None:
        if not self._evaluator.listen(enough, time.perf_counter() + self._patience_s):
            raise SilentError(missing)

    def _next(self, missing: str) -> OpenRequest:
        """Wait for a request and return the oldest in flight."""
        waiting = self._evaluator.in_flight
        self._wait(lambda: bool(waiting), missing)
        return next(iter(waiting.values()))

    def _answer_all(self) -> None:
        for asked in reversed([*self._evaluator.in_flight.values()]):
            self._evaluator.answer(asked)

    def _welcome(self) -> None:
        evaluator = self._evaluator
        self._wait(lambda: bool(evaluator.greeted or evaluator.in_flight), "a hello was waited for")

    def _one_by_one(self) -> None:
        for _ in range(ROUNDS):
            self._evaluator.answer(self._next("an evaluate was waited for"))

    def _out_of_order(self) -> None:
        waiting = self._evaluator.in_flight
        together = 0
        for _ in range(ROUNDS):
            self._next("an evaluate was waited for")
            together += self._evaluator.listen(lambda: len(waiting) > 1, time.perf_counter() + TOGETHER_S)
            self._answer_all()
        if not together:
            print("  not tried: the client never had two requests in flight", file=self._out)

    def _overload(self) -> None:
        asked = self._next("an evaluate was waited for")
        self._evaluator.refuse(asked, PASSING_CODE, "scripted: ask again")
        self._answer_all()
        self._next(f"after the error {PASSING_CODE} no other evaluate came: the request is to be sent again")

    def _draining(self) -> None:
        self._next("an evaluate was waited for")
        self._evaluator.drain()
        self._answer_all()
        before = self._evaluator.messages
        self._evaluator.listen(lambda: False, time.perf_counter() + DRAINING_S)
        came = self._evaluator.messages - before
        if came > MOST_WHILE_DRAINING:
            self._fault(
                f"{came} messages in {DRAINING_S:g} s to an evaluator that drains: wait, or go elsewhere"
            )
        self._anew()

    def _end_evaluator(self) -> None:
        self.compressed += self._evaluator.compressed
        self._evaluator.close()

    def _anew(self) -> None:
        self._end_evaluator()
        self._evaluator = self._start(self.address)

    def _restart(self) -> None:
        self._anew()
        self._evaluator.answer(
            self._next("after a restart the client has to connect, say hello, and ask again")
        )

    def _loss(self) -> None:
        self._next("an evaluate was waited for")
        self._anew()
        self._next("requests in flight are lost with the connection: connect, say hello, and send them again")
        self._answer_all()

    def _end(self) -> None:
        waiting = self._evaluator.in_flight
        for code in ENDING_CODES:
            if not self._evaluator.listen(lambda: bool(waiting), time.perf_counter() + self._patience_s):
                print(f"  the client went elsewhere or ended before the error {code}", file=self._out)
                return
            self._evaluator.refuse(next(iter(waiting.values())), code, "scripted: this request failed")
            self._answer_all()

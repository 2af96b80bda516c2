# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases that a client is walked through, and what is reported of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

from protocol.compression import offered
from protocol.conformance.evaluator import Asked, ScriptedEvaluator
from protocol.keys.pairs import KeyPair

ROUNDS = 3
"""Requests answered one by one, and times that answers are turned round."""

TOGETHER_S = 1.0
"""So long a second request in flight is waited for."""

DRAINING_S = 0.5
"""So long the evaluator drains."""

MOST_WHILE_DRAINING = 20
"""Messages in that time which are no spinning."""

PASSING_CODE = "overloaded"
"""The error after which every client asks again."""

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
"""Errors after which a client may end, or go elsewhere: a request that it needs has failed, or the fault is
its own, as it is with `not_ready` after a welcome."""


class SilentError(Exception):
    """The client did not do what it had to do within the patience."""


class Walk:
    """Walks one client through all cases.

    address: where to listen. patience_s: how long the client may take for anything. out: told of each case as
    it begins. faults: what the client did wrong, and how often. compressed: requests that came compressed.
    Every other evaluator, from the first on, offers compression.
    """

    def __init__(self, address: str, patience_s: float, out: TextIO, pair: KeyPair | None = None) -> None:
        """pair: demand keys, and have this pair."""
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
        """The faults, in the order in which they were found."""
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
        if not self._evaluator.listen(enough, time.monotonic() + self._patience_s):
            raise SilentError(missing)

    def _next(self, missing: str) -> Asked:
        """The oldest request in flight, which is waited for."""
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
            together += self._evaluator.listen(lambda: len(waiting) > 1, time.monotonic() + TOGETHER_S)
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
        self._evaluator.listen(lambda: False, time.monotonic() + DRAINING_S)
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
            if not self._evaluator.listen(lambda: bool(waiting), time.monotonic() + self._patience_s):
                print(f"  the client went elsewhere or ended before the error {code}", file=self._out)
                return
            self._evaluator.refuse(next(iter(waiting.values())), code, "scripted: this request failed")
            self._answer_all()

"""When the stages of a call begin and end, in one process or several: functions are wrapped by name, and what
they note goes to a file when the process ends.

All times are CLOCK_MONOTONIC nanoseconds, which the processes of a machine share.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic_ns
from typing import Any

Entry = tuple[str, int, int]
"""A stage with its beginning and end."""


class Timeline:
    """Notes each call of the functions that it wraps."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def wrap(self, targets: Mapping[str, str]) -> None:
        """Note the calls of functions and methods. targets: "package.module:Class.method" -> stage; with a
        "?" at its end, calls that return None are not noted."""
        for target, stage in targets.items():
            module, _, path = target.partition(":")
            owner: Any = importlib.import_module(module)
            *outer, name = path.split(".")
            for part in outer:
                owner = getattr(owner, part)
            setattr(owner, name, self._noting(getattr(owner, name), stage))

    def save_at_exit(self, file: Path) -> None:
        """Write the entries when the interpreter ends."""
        atexit.register(lambda: file.write_text(json.dumps(self.entries), "utf-8"))

    def _noting(self, function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        entries, name, optional = self.entries, stage.removesuffix("?"), stage.endswith("?")

        @functools.wraps(function)
        def noting(*positional: Any, **named: Any) -> Any:
            began = monotonic_ns()
            result = function(*positional, **named)
            if result is not None or not optional:
                entries.append((name, began, monotonic_ns()))
            return result

        return noting


def read(file: Path) -> list[Entry]:
    """The entries of a process that has ended."""
    return [(stage, began, ended) for stage, began, ended in json.loads(file.read_text("utf-8"))]


@dataclass(frozen=True, slots=True)
class Step:
    """A stage on the way of a call. before_us: from the end of the stage before to its beginning. own_us: its
    own time. Both are medians over all calls, in microseconds."""

    stage: str
    before_us: float
    own_us: float


def steps(entries: Sequence[Entry], order: Sequence[str]) -> list[Step]:
    """The stages in the order in which a call goes through them, one call at a time.

    A call begins with the first stage of `order`. Calls that did not come through all stages are left out.
    """
    rank = {stage: number for number, stage in enumerate(order)}
    own: defaultdict[str, list[int]] = defaultdict(list)
    before: defaultdict[str, list[int]] = defaultdict(list)
    call: list[Entry] = []
    for entry in sorted((entry for entry in entries if entry[0] in rank), key=lambda entry: entry[1]):
        if entry[0] == order[0]:
            call = []
        call.append(entry)
        if [stage for stage, _, _ in call] != list(order):
            continue
        for number, (stage, began, ended) in enumerate(call):
            own[stage].append(ended - began)
            before[stage].append(began - call[number - 1][2] if number else 0)
    if not own:
        raise ValueError("no call came through all stages")
    return [Step(stage, median(before[stage]) / 1000, median(own[stage]) / 1000) for stage in order]

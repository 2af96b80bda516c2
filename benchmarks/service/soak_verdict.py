# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts of the soak test: growth of memory, and unexpected log entries."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

WINDOWS = 20
"""Number of windows; each counts with its minimum, because short peaks of attacks are not growth."""

WARM_UP = 0.2
"""Share of the time that is ignored."""

EXPECTED_ERRORS = ("run elsewhere", "a network could not be loaded")
"""Expected error messages: of a faltering device, and of a network loaded at that time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """seconds: since the start. rss: bytes of the process."""

    seconds: float
    rss: int
    threads: int
    descriptors: int


def slope(samples: Sequence[Sample]) -> float:
    """Return the growth of a process in MB per minute: a regression over each window's minimum after the
    warm-up.
    NaN with too few samples."""
    if len(samples) < 2:
        return float("nan")
    first, last = samples[0].seconds, samples[-1].seconds
    begin = first + WARM_UP * (last - first)
    width = (last - begin) / WINDOWS
    smallest: dict[int, Sample] = {}
    for sample in samples:
        if sample.seconds >= begin:
            window = min(WINDOWS - 1, int((sample.seconds - begin) / width))
            if window not in smallest or sample.rss < smallest[window].rss:
                smallest[window] = sample
    if len(smallest) < WINDOWS:
        return float("nan")
    minutes = [sample.seconds / 60 for sample in smallest.values()]
    sizes = [sample.rss / 1e6 for sample in smallest.values()]
    return float(np.polyfit(minutes, sizes, 1)[0])


def read_log(lines: Iterable[str]) -> tuple[Counter[str], list[str]]:
    """Count a JSON log's messages at level warning and above, with numbers removed.
    Also return unexpected entries: tracebacks, unexplained errors, and lines that are not JSON."""
    said: Counter[str] = Counter()
    wrong: list[str] = []
    for line in lines:
        try:
            entry = json.loads(line)
            level, message = entry["level"], str(entry["message"])
        except (ValueError, KeyError, TypeError):
            wrong.append(line.rstrip())
            continue
        if level not in ("warning", "error", "critical"):
            continue
        said[f"{level}: {re.sub(r'[0-9.]+', '#', message)[:150]}"] += 1
        expected = any(each in message for each in EXPECTED_ERRORS)
        if "exception" in entry or (level != "warning" and not expected):
            wrong.append("\n".join([f"{level}: {message}", *entry.get("exception", "").splitlines()[-8:]]))
    return said, wrong

# SPDX-License-Identifier: GPL-3.0-or-later
"""Several devices described as one, to clients that size their requests and their games by it."""

from __future__ import annotations

from collections.abc import Sequence

from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.placement import Station, share_out
from protocol.messages import Curve


def together(models: Sequence[LatencyModel]) -> tuple[int, Curve]:
    """The recommended batch and the curve of devices that work together: how long they take, idle at first,
    for a request that is shared out among them.

    The batch is what all compute in the time that the fastest needs for its own; one that could not answer
    anything in that time adds nothing.
    """
    if len(models) == 1:
        return models[0].knee, models[0].curve()
    fastest = max(models, key=lambda model: model.throughput(model.knee))
    knee_ms = fastest.milliseconds(fastest.knee)
    knee = sum(
        [model.knee if model is fastest else min(model.knee, model.within(knee_ms)) for model in models]
    )
    stations = [Station(model, 0.0) for model in models]
    most = sum([model.max_batch for model in models])
    ladder = {size for model in models for size in model.ladder}
    sizes = sorted({size for step in ladder for size in (step, step * len(models)) if size <= most} | {knee})
    longest = 0.0
    curve = []
    for size in sizes:
        longest = max(longest, share_out(stations, size)[0])
        curve.append((size, round(longest, 4)))
    return knee, tuple(curve)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes several devices as one, for clients that size their requests and games by it."""

from __future__ import annotations

from collections.abc import Sequence

from evaluator.scheduling.latency import LatencyModel
from evaluator.scheduling.placement import Station, share_out
from protocol.wire.messages import Curve


def together(models: Sequence[LatencyModel]) -> tuple[int, Curve]:
    """Return the recommended batch and the curve of several idle devices that share each request.

    The batch is the sum of what each device computes in the time of the fastest one's own batch. A device
    that cannot finish any position in that time adds nothing.
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

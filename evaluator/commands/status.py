# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator status`: shows health, networks, devices and classes of a running evaluator."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from evaluator.commands import remote

if TYPE_CHECKING:
    from rich.console import RenderableType

    from protocol.client import EvaluatorClient
    from protocol.wire.messages import StatusReply

HELP = "show state, networks, devices and classes of a running service; the exit status is 0 if it is ready"

COUNTS = {
    "bad_messages": "that broke the protocol",
    "dropped_replies": "to clients that had left or did not read",
    "device_failures": "batches on which a device failed",
    "device_hangs": "batches that a device did not finish in time",
    "fallback_batches": "computed by a standby",
    "not_finite": "batches with NaN or infinity in a device's output",
    "cancelled": "requests that their clients took back",
}
"""Counts since the start, and what they count."""


add_arguments = partial(remote.add_arguments, watched=True)


def run(arguments: argparse.Namespace) -> int:
    """Show the status. Returns 0 if the evaluator is ready, 1 if it is not or does not answer."""
    return remote.watch(arguments, _look, lambda status: 0 if status["ready"] else 1)


def _look(client: EvaluatorClient) -> tuple[dict[str, Any], RenderableType]:
    reply = client.status()
    return {"address": client.address, **asdict(reply)}, _view(client.address, reply)


def _view(address: str, status: StatusReply) -> RenderableType:
    from rich.console import Group

    return Group(
        *_lines(address, status), _networks(status), _devices(status.metrics), _classes(status.metrics)
    )


def _lines(address: str, status: StatusReply) -> Iterator[str]:
    metrics = status.metrics
    state = status.state or ("draining" if status.draining else "ready" if status.ready else "loading")
    since = f" since {datetime.fromtimestamp(status.since):%Y-%m-%d %H:%M:%S}" if status.since else ""
    yield f"{address}: {state}{since}{f': {status.reason}' if status.reason else ''}"
    yield (
        f"{metrics.get('positions_per_second', 0):,.0f} positions/s, "
        f"{metrics.get('mean_batch', 0):,.0f} in a batch, "
        f"{metrics.get('clients', 0):,} clients, {metrics.get('connections', 0):,} connections"
    )
    counts = {name: metrics.get(name, 0) for name in COUNTS} | metrics.get("errors", {})
    counts |= {f"closed: {name}": count for name, count in metrics.get("closed_connections", {}).items()}
    told = [
        f"{name.replace('_', ' ')} {count:,}{f' ({COUNTS[name]})' if name in COUNTS else ''}"
        for name, count in counts.items()
        if count
    ]
    if told:
        yield f"since the start: {', '.join(told)}"


def _networks(status: StatusReply) -> RenderableType:
    table = remote.table("network", "also", "backend", numbers=("best batch", "queued"))
    queued = status.metrics.get("queued", {})
    for network in status.networks:
        also = [alias for alias, name in status.aliases.items() if name == network.name]
        waiting = sum(queued.get(network.name, {}).values())
        row = network.name, ", ".join(also), network.backend, f"{network.recommended_batch:,}", f"{waiting:,}"
        table.add_row(*row)
    return table


def _devices(metrics: Mapping[str, Any]) -> RenderableType:
    """Return a table of devices. Busy is a share of the time since the start."""
    table = remote.table("device", "in use", "latency curve", "memory", "sensors", numbers=("busy",))
    busy, uptime = metrics.get("busy_seconds", {}), max(metrics.get("uptime_s", 0), 1e-3)
    for device, used in metrics.get("in_use", {}).items():
        memory = metrics.get("device_memory", {}).get(device)
        sensors = metrics.get("device_sensors", {}).get(device, {})
        units = {"watts": "W", "celsius": "°C"}
        curves = [curves[device] for curves in metrics.get("curves", {}).values() if device in curves]
        curve = metrics.get("tuning", {}).get(device) or ", ".join(map(_curve, curves))
        table.add_row(
            device,
            "yes" if used else "no",
            curve,
            f"{memory['used'] / 2**30:.1f} of {memory['total'] / 2**30:.0f} GiB" if memory else "",
            ", ".join(f"{sensors[name]:.0f} {unit}" for name, unit in units.items() if sensors.get(name)),
            f"{busy.get(device, 0) / uptime:.0%}",
        )
    return table


def _curve(curve: Mapping[str, Any]) -> str:
    return f"{curve['measured']:,} of {curve['largest']:,}{'' if curve['known'] else ', in progress'}"


def _classes(metrics: Mapping[str, Any]) -> RenderableType:
    table = remote.table("class", numbers=("target", "requests", "positions", "queued"))
    queued = metrics.get("queued", {}).values()
    for name, counted in metrics.get("classes", {}).items():
        waiting = sum(classes.get(name, 0) for classes in queued)
        target = metrics.get("target_ms", {}).get(name)
        counts = counted["requests"], counted["positions"], waiting
        table.add_row(name, f"{target:,.0f} ms" if target else "", *(f"{count:,}" for count in counts))
    return table

# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator status`: prints health, networks and metrics of a running evaluator."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evaluator import remote

if TYPE_CHECKING:
    from protocol.messages import StatusReply

HELP = "print state, networks and metrics of a running service; the exit status is 0 if it is ready"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the evaluator's address."""
    remote.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the status. Returns 0 if the evaluator is ready, 1 if it is not or does not answer."""
    from protocol.client import EvaluatorClient

    def status(client: EvaluatorClient) -> int:
        reply = client.status()
        remote.show(arguments, {"address": client.address, **asdict(reply)}, _lines(client.address, reply))
        return 0 if reply.ready else 1

    return remote.ask(arguments, status)


def _lines(address: str, status: StatusReply) -> list[str]:
    state = status.state or ("draining" if status.draining else "ready" if status.ready else "loading")
    since = f" since {datetime.fromtimestamp(status.since):%Y-%m-%d %H:%M:%S}" if status.since else ""
    lines = [f"{address}: {state}{since}{f': {status.reason}' if status.reason else ''}"]
    for network in status.networks:
        also = "".join(f", {alias}" for alias, name in status.aliases.items() if name == network.name)
        lines.append(
            f"network {network.name}{also}: {network.backend} on {network.device}, input format "
            f"{network.input_format}, best batch {network.recommended_batch}"
        )
        for device, told in status.metrics.get("curves", {}).get(network.name, {}).items():
            knee = "knee known" if told["known"] else "knee not known yet"
            lines.append(
                f"  {device}: measured up to {told['measured']} of {told['largest']} positions, {knee}"
            )
    for name, value in status.metrics.items():
        if name == "curves":
            continue
        lines.append(f"{name}: {_listed(value) if isinstance(value, dict) else value}")
    return lines


def _listed(values: dict[str, Any]) -> str:
    """Return values with their names: "a 1, b (c 2, d 3)"."""
    shown = {
        name: f"({_listed(value)})" if isinstance(value, dict) else value for name, value in values.items()
    }
    return ", ".join(f"{name} {value}" for name, value in shown.items())

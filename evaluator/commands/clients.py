# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator clients`: shows the clients of a running evaluator."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from evaluator.commands import remote
from protocol.common.printing import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from protocol.client import EvaluatorClient

HELP = "show the clients of a running service"


add_arguments = partial(remote.add_arguments, watched=True)


def run(arguments: argparse.Namespace) -> int:
    """Show a row per client."""
    return remote.watch(arguments, _look)


def _look(evaluator: EvaluatorClient) -> tuple[list[Mapping[str, Any]], RenderableType]:
    clients = list(evaluator.clients())
    table = remote.table("client", "from", "since", "in flight", numbers=("requests", "positions", "errors"))
    for client in clients:
        flight = [f"{count:,} {name}" for name, count in client["positions_in_flight"].items() if count]
        name = printable(client["name"]) or "(no name)"
        counts = (f"{client[each]:,}" for each in ("requests", "positions", "errors"))
        since = datetime.fromtimestamp(client["since"])
        table.add_row(name, _origin(client), f"{since:%m-%d %H:%M}", ", ".join(flight), *counts)
    return clients, table


def _origin(client: Mapping[str, Any]) -> str:
    """Return the origin of a client: its key, the process on this machine's own sockets, or its address."""
    address = client["address"]
    if client.get("key"):
        return f"key {printable(client['key'])}"
    if address.startswith("localhost:"):
        user, _, process = address.split(":")[1:4]
        return f"process {process}, user {user}"
    return printable(address) or "(unknown)"

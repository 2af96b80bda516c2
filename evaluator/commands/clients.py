# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator clients`: lists the clients of a running evaluator."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from evaluator import remote

HELP = "list the clients of a running service"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the evaluator's address."""
    remote.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one line per client."""
    from protocol.client import EvaluatorClient

    def clients(client: EvaluatorClient) -> int:
        found = client.clients()
        return remote.show(arguments, list(found), [*map(_line, found)])

    return remote.ask(arguments, clients)


def _line(client: Mapping[str, Any]) -> str:
    in_flight = ", ".join(f"{count} {name}" for name, count in client["positions_in_flight"].items() if count)
    return (
        f"{client['name'] or '(no name)'} at {_origin(client['address'])}{_key(client)} "
        f"since {datetime.fromtimestamp(client['since']):%Y-%m-%d %H:%M:%S}: "
        f"{client['requests']} requests, {client['positions']} positions, {client['errors']} errors, "
        f"in flight: {in_flight or 'nothing'}"
    )


def _origin(address: str) -> str:
    """Return the origin of a client; for this machine's own sockets, the process."""
    if address.startswith("localhost:"):
        user, _, process = address.split(":")[1:4]
        return f"this machine (process {process} of user {user})"
    return address or "(unknown)"


def _key(client: Mapping[str, Any]) -> str:
    """Return the name of a client's key in the list of clients, if any."""
    return f" with the key of {client['key']}" if client.get("key") else ""

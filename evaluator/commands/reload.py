# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator reload`: reloads changed network files in a running evaluator."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from evaluator import remote

HELP = "read changed network files of a running service again; no request is lost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the network and the evaluator's address."""
    parser.add_argument(
        "network",
        nargs="?",
        default="",
        metavar="NETWORK",
        help="name, alias or content hash (default: all networks)",
    )
    remote.add_arguments(parser, timeout=600.0)


def run(arguments: argparse.Namespace) -> int:
    """Print the changes. Returns 1 if a file could not be loaded; its previous content is still served."""
    from protocol.client import EvaluatorClient

    def reload(client: EvaluatorClient) -> int:
        reply = client.reload(arguments.network)
        lines = [
            f"{network.name}: {network.content_hash if network.name in reply.changed else 'unchanged'}"
            for network in reply.networks
        ]
        return remote.show(arguments, asdict(reply), lines)

    return remote.ask(arguments, reload)

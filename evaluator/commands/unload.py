# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator unload`: unloads a network of a running evaluator."""

from __future__ import annotations

import argparse

from evaluator import remote

HELP = "remove a network from a running service after its queued requests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the network and the evaluator's address."""
    parser.add_argument("network", metavar="NETWORK", help="name, alias or content hash")
    remote.add_arguments(parser, timeout=600.0)


def run(arguments: argparse.Namespace) -> int:
    """Unload the network. Returns 1 if it does not exist or is the last one."""
    from protocol.client import EvaluatorClient

    def unload(client: EvaluatorClient) -> int:
        client.unload(arguments.network)
        return remote.show(arguments, {"unloaded": arguments.network}, [f"unloaded {arguments.network}"])

    return remote.ask(arguments, unload)

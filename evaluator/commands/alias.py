# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator alias`: sets or removes aliases of the networks of a running evaluator."""

from __future__ import annotations

import argparse

from evaluator import remote

HELP = (
    "give a network of a running service a further name; `default` is the network of clients that name none"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the alias, the network, and the evaluator's address."""
    parser.add_argument("alias", metavar="ALIAS", help="the further name")
    parser.add_argument(
        "network",
        nargs="?",
        default="",
        metavar="NETWORK",
        help="name, alias or content hash (default: remove the alias)",
    )
    remote.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the network that the alias names. Returns 1 if the network does not exist."""
    from protocol.client import EvaluatorClient

    def alias(client: EvaluatorClient) -> int:
        name = client.alias(arguments.alias, arguments.network)
        text = f"{arguments.alias} means {name}" if name else f"{arguments.alias} means nothing any more"
        return remote.show(arguments, {"alias": arguments.alias, "network": name}, [text])

    return remote.ask(arguments, alias)

# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator load`: loads another network into a running evaluator."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from evaluator import remote
from protocol.host.folders import expanded

HELP = "load a further network file into a running service"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the file, its heads, an alias, and the evaluator's address."""
    parser.add_argument("file", metavar="FILE", help="network file, as a path on the service's machine")
    parser.add_argument(
        "--policy-head",
        default="",
        metavar="NAME",
        help="head of a network that has several (default: the file's own choice)",
    )
    parser.add_argument(
        "--value-head",
        default="",
        metavar="NAME",
        help="head of a network that has several (default: the file's own choice)",
    )
    parser.add_argument(
        "--alias", default="", metavar="ALIAS", help="further name of the network; see `alias`"
    )
    remote.add_arguments(parser, timeout=600.0)


def run(arguments: argparse.Namespace) -> int:
    """Print the network's name. Returns 1 if it could not be loaded."""
    from protocol.client import EvaluatorClient

    def load(client: EvaluatorClient) -> int:
        path = expanded(arguments.file)
        network = client.load(
            str(path.resolve() if path.exists() else path),
            policy_head=arguments.policy_head,
            value_head=arguments.value_head,
        )
        if arguments.alias:
            client.alias(arguments.alias, network.name)
        return remote.show(arguments, asdict(network), [f"{network.name} on {network.device}"])

    return remote.ask(arguments, load)

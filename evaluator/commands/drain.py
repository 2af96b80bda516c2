# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator drain`: the end of a running evaluator, once it has finished what it has."""

from __future__ import annotations

import argparse

from evaluator.commands import connection

HELP = "end a running service after its queued requests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the evaluator is."""
    connection.add_arguments(parser, timeout=600.0)


def run(arguments: argparse.Namespace) -> int:
    """Returns when nothing is queued or running any more, 1 if that took too long."""
    from protocol.client import EvaluatorClient

    def drain(client: EvaluatorClient) -> int:
        client.drain()
        return connection.show(arguments, {"drained": client.address}, "drained")

    return connection.ask(arguments, drain)

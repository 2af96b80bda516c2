# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator drain`: ends a running evaluator after it has finished its requests."""

from __future__ import annotations

import argparse

from evaluator import remote

HELP = "end a running service after its queued requests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the evaluator's address."""
    remote.add_arguments(parser, timeout=600.0)


def run(arguments: argparse.Namespace) -> int:
    """Wait until nothing is queued or running. Returns 1 after a timeout."""
    from protocol.client import EvaluatorClient

    def drain(client: EvaluatorClient) -> int:
        client.drain()
        return remote.show(arguments, {"drained": client.address}, ["drained"])

    return remote.ask(arguments, drain)

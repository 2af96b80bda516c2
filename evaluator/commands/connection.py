"""What the commands that talk to a running evaluator share: where it is, and how failures are told."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient


def add_arguments(parser: argparse.ArgumentParser, timeout: float = 5.0) -> None:
    """--address, --timeout and --json."""
    parser.add_argument(
        "--address",
        help="where it listens, tcp://HOST:PORT#KEY with its public key where it demands keys "
        "(default: the well-known addresses)",
    )
    parser.add_argument(
        "--keys", default="", metavar="FOLDER", help="keys (default: the user's configuration folder)"
    )
    parser.add_argument(
        "--timeout", type=float, default=timeout, metavar="S", help="seconds (default: %(default)g)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def ask(arguments: argparse.Namespace, question: Callable[[EvaluatorClient], int]) -> int:
    """Put a question to the evaluator that `arguments` name; returns what it does, the exit status.

    Prints the reason and returns 1 when nobody answers or the evaluator refuses.
    """
    from protocol.addresses import default_addresses
    from protocol.client import EvaluatorClient
    from protocol.errors import EvaluatorError, RemoteError

    problem = ""
    for address in [arguments.address] if arguments.address else default_addresses():
        try:
            client = EvaluatorClient(address, timeout=arguments.timeout, keys=arguments.keys, handshake=False)
            with client:
                return question(client)
        except RemoteError as error:
            problem = str(error)
            break
        except EvaluatorError as error:
            problem = str(error)
            if not arguments.address:
                problem += "; `python -m evaluator serve` starts one, --address names one elsewhere"
    print(f"error: {problem}", file=sys.stderr)
    return 1


def show(arguments: argparse.Namespace, value: Any, text: str) -> int:
    """Print an answer, as JSON where that is asked for; returns 0."""
    print(json.dumps(value, default=str) if arguments.json else text)
    return 0

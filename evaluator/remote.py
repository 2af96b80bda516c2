# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by commands that use a running evaluator: its address, and error messages."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from protocol.host.printing import printable

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient


def add_arguments(parser: argparse.ArgumentParser, timeout: float = 5.0) -> None:
    """Add --address, --timeout and --json."""
    parser.add_argument(
        "--address",
        help="address of the service; tcp://HOST:PORT#KEY with its public key if it requires keys "
        "(default: this machine's default addresses)",
    )
    parser.add_argument(
        "--keys",
        default="",
        metavar="FOLDER",
        help="folder with keys (default: the user's configuration folder)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=timeout,
        metavar="S",
        help="seconds to wait for an answer (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def ask(arguments: argparse.Namespace, question: Callable[[EvaluatorClient], int]) -> int:
    """Call `question` with a client of the evaluator in `arguments`, and return its result, the exit status.

    Prints the reason and returns 1 if the evaluator does not answer or rejects the request.
    """
    from protocol.client import EvaluatorClient
    from protocol.connections.addresses import default_addresses
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
            if arguments.address:
                problem += _about(arguments.address)
            else:
                problem += "; `python -m evaluator serve` starts one, --address names one elsewhere"
    print(f"error: {printable(problem)}", file=sys.stderr)
    return 1


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise argparse.ArgumentTypeError(f"a number of seconds above 0, not {text!r}")


def _about(address: str) -> str:
    """Return a hint on an address without an evaluator."""
    if not address.startswith("tcp://"):
        return ""
    host, _, port = address.partition("#")[0].removeprefix("tcp://").rpartition(":")
    if not (port.isdecimal() and 0 < int(port) < 65536):
        return f": a port is a number from 1 to 65535, not {port!r}"
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        return f": the host {host!r} is not found ({error.strerror})"
    return "; is it the --address that `serve` was given there, and not the port of its metrics?"


def show(arguments: argparse.Namespace, value: Any, lines: Sequence[str]) -> int:
    """Print an answer, as JSON with --json. Returns 0."""
    print(json.dumps(value, default=str) if arguments.json else "\n".join(map(printable, lines)))
    return 0

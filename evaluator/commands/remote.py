# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared by commands that use a running evaluator: its address, and error messages."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from protocol.common.commands import declare
from protocol.common.printing import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from protocol.client import EvaluatorClient


def add_arguments(parser: argparse.ArgumentParser, *, timeout: float = 5.0, watched: bool = False) -> None:
    """Add --address, --keys, --timeout and --json. watched: add --watch, for `watch`."""
    declare(
        parser,
        {
            "--address ADDRESS": "address of the service; tcp://HOST:PORT#KEY with its public key if it "
            "requires keys (default: this machine's default addresses)",
            "--keys FOLDER = ''": "folder with keys (default: the user's configuration folder)",
        },
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=timeout,
        metavar="S",
        help="seconds to wait for an answer (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    if watched:
        parser.add_argument(
            "--watch",
            type=_seconds,
            nargs="?",
            const=2.0,
            metavar="S",
            help="show it again every S seconds (default: 2) until Ctrl-C",
        )


def watch(
    arguments: argparse.Namespace,
    look: Callable[[EvaluatorClient], tuple[Any, RenderableType]],
    status: Callable[[Any], int] = lambda answer: 0,
) -> int:
    """Show an answer once, or again and again with --watch; as JSON with --json.

    look: returns the answer and its view. status: returns the exit status for the last answer. Otherwise as
    `ask`.
    """
    return ask(arguments, lambda client: status(_watched(arguments, lambda: look(client))))


def _watched(arguments: argparse.Namespace, look: Callable[[], tuple[Any, RenderableType]]) -> Any:
    """Show answers, and return the last one."""
    from rich.console import Console
    from rich.live import Live

    console = Console(markup=False, highlight=False)

    def once() -> Any:
        value, view = look()
        if arguments.json:
            print(json.dumps(value, default=str), flush=True)
        elif live.is_started:
            live.update(view, refresh=True)
        else:
            console.print(view)
        return value

    live = Live(console=console, auto_refresh=False)
    with live if arguments.watch and not arguments.json and console.is_terminal else contextlib.nullcontext():
        value = once()
        with contextlib.suppress(KeyboardInterrupt):
            while arguments.watch:
                time.sleep(arguments.watch)
                value = once()
    return value


def table(*texts: str, numbers: Sequence[str] = ()) -> Table:
    """Return an empty table with columns of texts, then of numbers. It wraps in a narrow terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    columns = [Column(name, overflow="fold") for name in texts]
    columns += [Column(name, justify="right", overflow="fold") for name in numbers]
    return Table(*columns, box=SIMPLE_HEAD, pad_edge=False)


def ask(arguments: argparse.Namespace, question: Callable[[EvaluatorClient], int]) -> int:
    """Call `question` with a client of the evaluator in `arguments`, and return its result, the exit status.

    Prints the reason and returns 1 if the evaluator does not answer or rejects the request.
    """
    from protocol.client import EvaluatorClient
    from protocol.connections.addresses import default_addresses
    from protocol.errors import EvaluatorFailure, RemoteError

    problem = ""
    for address in [arguments.address] if arguments.address else default_addresses():
        try:
            client = EvaluatorClient(address, timeout=arguments.timeout, keys=arguments.keys, handshake=False)
            with client:
                return question(client)
        except RemoteError as error:
            problem = str(error)
            break
        except EvaluatorFailure as error:
            problem = str(error)
            if arguments.address:
                problem += _about(arguments.address)
            else:
                problem += "; `wavefront-evaluator serve` starts one, --address names one elsewhere"
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

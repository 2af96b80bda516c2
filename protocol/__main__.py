# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m protocol`: data and checks for authors of clients.

python -m protocol table     # the move of each policy index, a JSON list of 1858 texts
python -m protocol vectors   # test vectors: positions, bytes, indices, evaluations
python -m protocol schema    # a JSON Schema of the messages' first frames
python -m protocol conformance --listen tcp://127.0.0.1:5577   # tests a client against a scripted evaluator
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from protocol.connections.addresses import DEFAULT_TCP
from protocol.host import processes
from protocol.policy import policy_moves
from protocol.schema import schema
from protocol.vectors import vectors

DOCUMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "table": (policy_moves, "the move of each policy index"),
    "vectors": (vectors, "test vectors"),
    "schema": (schema, "a JSON Schema of the messages"),
}
"""Function that makes the JSON document, and its help text, by command name."""


def conformance(address: str, patience_s: float, keys: str | None) -> int:
    """Run the conformance cases with one client and return the exit status.
    0: no faults. 1: faults. 2: invalid keys, or the address cannot be bound.
    keys: folder with the evaluator's key pair, created if missing; None disables CURVE.
    """
    import zmq

    from protocol.conformance.walk import Walk
    from protocol.keys.files import SERVICE_PAIR
    from protocol.keys.notation import KeysError, show_key
    from protocol.keys.pairs import pair_at

    try:
        pair = None if keys is None else pair_at(Path(keys) / SERVICE_PAIR)
        walk = Walk(address, patience_s, sys.stdout, pair)
    except KeysError as error:
        print(f"--keys: {error}", file=sys.stderr)
        return 2
    except zmq.ZMQError as error:
        print(f"cannot listen at {address} (tcp://HOST:PORT or ipc://PATH): {error}", file=sys.stderr)
        return 2
    mark = "" if pair is None else f"#{show_key(pair.public)}"
    print(f"listening at {walk.address}{mark}: start the client, and let it ask and ask again", flush=True)
    faults = walk.run()
    for text, count in faults.items():
        print(f"WRONG {text}" + (f" ({count} times)" if count > 1 else ""))
    print(f"{walk.compressed} requests were compressed")
    print("nothing wrong" if not faults else f"{len(faults)} kinds of faults")
    return 1 if faults else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m protocol", description="the evaluator protocol")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in DOCUMENTS.items():
        commands.add_parser(name, help=f"print {text} as JSON")
    walk = commands.add_parser("conformance", help="a scripted evaluator that says what a client does wrong")
    walk.add_argument("--listen", default=DEFAULT_TCP, metavar="ADDRESS", help="default: %(default)s")
    walk.add_argument(
        "--keys", metavar="FOLDER", help="demand CURVE; the evaluator's keys, made if they are missing"
    )
    walk.add_argument(
        "--patience",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="for each thing that the client has to do",
    )
    parsed = parser.parse_args(arguments)
    if parsed.command == "conformance":
        if not parsed.patience > 0:
            walk.error(f"--patience is a number of seconds above 0, not {parsed.patience:g}")
        return conformance(parsed.listen, parsed.patience, parsed.keys)
    json.dump(DOCUMENTS[parsed.command][0](), sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    processes.console(main)

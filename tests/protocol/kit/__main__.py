# SPDX-License-Identifier: GPL-3.0-or-later
"""Data and checks for authors of clients, from a checkout:

python -m tests.protocol.kit table     # the move of each policy index, a JSON list of 1858 texts
python -m tests.protocol.kit vectors   # test vectors: positions, bytes, indices, evaluations
python -m tests.protocol.kit schema    # a JSON Schema of the messages' first frames
python -m tests.protocol.kit conformance --listen tcp://127.0.0.1:5577   # a scripted evaluator for a client
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from protocol.common.keys.files import SERVICE_PAIR
from protocol.common.keys.notation import show_key
from protocol.common.keys.pairs import pair_at
from protocol.connections.addresses import DEFAULT_TCP
from protocol.policy import policy_moves
from tests.protocol.kit.schema import schema
from tests.protocol.kit.vectors import vectors
from tests.protocol.kit.walk import Walk

DOCUMENTS: dict[str, Callable[[], Any]] = {"table": policy_moves, "vectors": vectors, "schema": schema}
"""Function that makes a JSON document, by command name."""


def conformance(address: str, patience_s: float, keys: str | None) -> int:
    """Run the conformance cases with one client and return the exit status: 1 if it has faults.
    keys: folder with the evaluator's key pair, created if missing; None disables CURVE.
    """
    pair = None if keys is None else pair_at(Path(keys) / SERVICE_PAIR)
    walk = Walk(address, patience_s, sys.stdout, pair)
    mark = "" if pair is None else f"#{show_key(pair.public)}"
    print(f"listening at {walk.address}{mark}: start the client, and let it ask and ask again", flush=True)
    faults = walk.run()
    for text, count in faults.items():
        print(f"WRONG {text}" + (f" ({count} times)" if count > 1 else ""))
    print(f"{walk.compressed} requests were compressed")
    print("nothing wrong" if not faults else f"{len(faults)} kinds of faults")
    return 1 if faults else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol.kit", description="evaluator protocol")
    parser.add_argument("command", choices=[*DOCUMENTS, "conformance"])
    parser.add_argument("--listen", default=DEFAULT_TCP, metavar="ADDRESS", help="default: %(default)s")
    parser.add_argument("--keys", metavar="FOLDER", help="require CURVE; its keys, made if missing")
    parser.add_argument(
        "--patience", type=float, default=30.0, metavar="SECONDS", help="for each action of the client"
    )
    parsed = parser.parse_args(arguments)
    if parsed.command == "conformance":
        return conformance(parsed.listen, parsed.patience, parsed.keys)
    json.dump(DOCUMENTS[parsed.command](), sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())

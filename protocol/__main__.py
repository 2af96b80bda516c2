"""`python -m protocol`: what authors of clients need, for programs to read.

python -m protocol table     # the move of each policy index, a JSON list of 1858 texts
    python -m protocol vectors   # test vectors: positions, bytes, indices, evaluations
    python -m protocol schema    # a JSON Schema of the messages' first frames
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from protocol.policy import policy_moves
from protocol.schema import schema
from protocol.vectors import vectors

DOCUMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "table": (policy_moves, "the move of each policy index"),
    "vectors": (vectors, "test vectors"),
    "schema": (schema, "a JSON Schema of the messages"),
}
"""What is printed as JSON, by the name of its command, with its help."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m protocol", description="the evaluator protocol")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in DOCUMENTS.items():
        commands.add_parser(name, help=f"print {text} as JSON")
    parsed = parser.parse_args(arguments)
    json.dump(DOCUMENTS[parsed.command][0](), sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line of the evaluator: `python -m evaluator COMMAND`.

Each command is a module of evaluator/commands with HELP, add_arguments(parser) and run(arguments) -> exit
status; only the one in use is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from protocol.host import processes

COMMANDS: dict[str, str] = {
    "serve": "run the service",
    "status": "health and metrics of a running service",
    "bench": "positions per second and milliseconds per batch size",
    "devices": "the GPUs that can be used, or why they cannot",
    "verify": "a backend's errors against the float64 reference",
    "tune": "measure the matrix products on a GPU and keep the fastest",
    "kernels": "registers, spills and occupancy of every GPU kernel, for every target",
    "describe": "what a network file contains",
    "export": "write a network as an ONNX model",
    "random-network": "write a network with random weights",
    "simulate": "compare batch policies on a latency curve",
}


def console() -> NoReturn:
    """The console script."""
    processes.console(main)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the process's exit status."""
    import argparse
    import importlib

    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), "")
    parser = argparse.ArgumentParser(
        prog="wavefront-evaluator",
        description="Runs lc0 networks for chess engines and scripts. Without a command: serve.",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=text)
        if name == chosen:
            module = importlib.import_module(f"evaluator.commands.{name.replace('-', '_')}")
            subparser.description = module.HELP
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    if not chosen and not {"-h", "--help"} & set(arguments):
        return main(["serve", *arguments])
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))

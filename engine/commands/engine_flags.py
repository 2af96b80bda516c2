"""The flags of `match` and `selfplay` for this engine's options, and what was given before the command."""

from __future__ import annotations

import argparse
from typing import Any

FLAGS = {
    "weights": "network file; the shipped one if not given",
    "backend": "what computes it",
    "evaluator": "address of a running evaluator",
    "threads": "threads of the evaluator's CPU backend",
}
"""The options with a flag of their own after the command, and what they are."""


def add_engine_flags(group: argparse._ArgumentGroup) -> None:
    for name, text in FLAGS.items():
        group.add_argument(f"--{name}", metavar=name.upper(), help=text)
    for alias in ("--network", "--WeightsFile"):
        group.add_argument(alias, dest="weights", help=argparse.SUPPRESS)


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that were given before and after the command, by attribute; those after it are texts, not
    checked yet. Raises OptionError."""
    from dataclasses import asdict

    from engine.options import Options, options_of_arguments

    default = asdict(Options())
    before = asdict(options_of_arguments(arguments))
    given: dict[str, Any] = {name: value for name, value in before.items() if value != default[name]}
    return given | {name: value for name in FLAGS if (value := getattr(arguments, name)) is not None}

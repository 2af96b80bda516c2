# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of `match` and `selfplay` for this engine's options."""

from __future__ import annotations

import argparse

FLAGS = {
    "weights": "network file, wavefront-cpu or wavefront-gpu (default: chosen by device)",
    "backend": "what computes the network (default: auto)",
    "evaluator": "address of a running evaluator",
    "threads": "threads of the evaluator's CPU backend",
}
"""The options with their own flag, and their help."""


def add_engine_flags(group: argparse._ArgumentGroup) -> None:
    for name, text in FLAGS.items():
        group.add_argument(f"--{name}", metavar=name.upper(), help=text)
    for alias in ("--network", "--WeightsFile"):
        group.add_argument(alias, dest="weights", help=argparse.SUPPRESS)


def given_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options given as flags, as unchecked strings."""
    return {name: value for name in FLAGS if (value := getattr(arguments, name)) is not None}

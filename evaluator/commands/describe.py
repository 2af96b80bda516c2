# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator describe [FILE]`: prints the contents of a network file."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from evaluator.network import load_network
from evaluator.network.describe import describe

HELP = "print a network's format, shapes, parameters, cost and heads"


ARGUMENTS = {
    "file FILE? = wavefront-cpu": "network (.pb.gz or .pb), wavefront-cpu or wavefront-gpu (default: "
    "wavefront-cpu)",
    "--policy-head NAME": "vanilla, optimistic, soft or opponent",
    "--value-head NAME": "winner, q or st",
    "--json": "print JSON",
}


def run(arguments: argparse.Namespace) -> int:
    network = load_network(arguments.file, policy_head=arguments.policy_head, value_head=arguments.value_head)
    description = describe(network)
    if arguments.json:
        print(json.dumps(description, indent=2))
        return 0
    table = Table(title=network.name, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for topic, values in description.items():
        if isinstance(values, dict):
            table.add_section()
            for key, value in values.items():
                if value not in (None, "", [], {}):
                    table.add_row(f"{topic}: {key}".replace("_", " "), _text(value))
    Console(markup=False, highlight=False).print(table)
    return 0


def _text(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case dict():
            return ", ".join(f"{key.replace('_', ' ')} {_text(item)}" for key, item in value.items())
        case list():
            return ", ".join(map(_text, value))
        case int():
            return f"{value:,}"
        case _:
            return str(value)

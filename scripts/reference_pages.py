# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the generated parts of docs/reference and of the model card, from the declarations in the code:

    python scripts/reference_pages.py

A part is between the lines `<!-- generated: WHAT -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from engine.apps.web.openapi import document
from engine.apps.web.service import WebService
from engine.options import OPTIONS
from evaluator.devices.metrics import Metrics, State
from evaluator.network import SHIPPED_NETWORKS, load_network
from evaluator.network.describe import describe
from evaluator.service.http.prometheus import registry
from protocol.common.settings.spec import Setting, shown_number
from protocol.wire.fields import Field
from protocol.wire.messages import REPLIES, REQUESTS, NetworkInfo, first_frame

ROOT = Path(__file__).resolve().parent.parent

PAGES = [*sorted((ROOT / "docs" / "reference").glob("*.md")), ROOT / "evaluator" / "networks" / "README.md"]

PROGRAMS = {
    "wavefront": "engine.cli",
    "wavefront-evaluator": "evaluator.cli",
    "wavefront-training": "training.cli",
}

SHORTER = (
    (r"^an? ", ""),
    (r" of at most (\d+) characters", r" ≤ \1"),
    (r" of at most (\d+), each an?", r" ≤ \1 of"),
    (r" of at most (\d+), each", r" ≤ \1 of"),
    (r" of at least (\d+)", r" ≥ \1"),
    (r" from (\d+) to (\d+)", r" \1–\2"),
    (r" with text keys", ""),
)
"""Parts of the words of a kind, and what the tables write for them."""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""

    def cell(text: str) -> str:
        code = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
        return "".join(each if each.startswith("`") else each.replace("<", "&lt;") for each in code)

    lines = [f"| {' | '.join(map(cell, line))} |" for line in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


# -- messages --------------------------------------------------------------------------------------------


def message(name: str) -> str:
    """Return the table of a message's fields, without `id`. name: its type, or network."""
    declaring: Any = {"network": NetworkInfo, **REQUESTS, **REPLIES}[name]
    defaults = {each.name: each.default for each in fields(declaring) if each.default is not MISSING}

    def row(field: Field) -> tuple[str, str, str]:
        kind = field.kind.words
        for pattern, replacement in SHORTER:
            kind = re.sub(pattern, replacement, kind)
        default = defaults.get(field.attribute)
        shown = f" (default: {default})" if field.optional and default else ""
        return f"`{field.name}`" + (" (optional)" if field.optional else ""), kind, f"{field.meaning}{shown}"

    rows = (row(each) for each in first_frame(declaring) if each.name != "id")
    return table((f"field of {name}", "type", "meaning"), rows)


# -- HTTP ------------------------------------------------------------------------------------------------


def operation(path: str, method: str, described: dict[str, Any]) -> str:
    """Return the section of an operation."""
    codes = ", ".join(described["responses"])
    parts = [f"### `{method.upper()} {path}`", f"{described['summary']} Answers: {codes}."]
    body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if path == "/api/v1/analyse":
        parts.append("The body is a [query](analysis.md#queries), or `queries`: a list of queries.")
    elif body:
        body = document(WebService)["components"]["schemas"][body["$ref"].rpartition("/")[2]]
        required = body.get("required", ())
        rows = (
            (
                f"`{name}`{' (required)' if name in required else ''}",
                field.get("type", ""),
                field.get("description", ""),
            )
            for name, field in body["properties"].items()
        )
        parts.append(table(("field", "type", "meaning"), rows))
    return "\n\n".join(parts)


def operations() -> str:
    """Return a section for each operation of the HTTP API."""
    paths = document(WebService)["paths"].items()
    return "\n\n".join(operation(path, method, each[method]) for path, each in paths for method in each)


# -- commands --------------------------------------------------------------------------------------------


def parser_of(program: str, arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser that prints a program's help."""
    found: list[argparse.ArgumentParser] = []
    with (
        mock.patch.object(
            argparse.ArgumentParser, "print_help", lambda parser, file=None: found.append(parser)
        ),
        contextlib.suppress(SystemExit),
    ):
        import_module(PROGRAMS[program]).main([*arguments, "--help"])
    return found[0]


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the actions of a command, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def arguments(parser: argparse.ArgumentParser) -> str:
    """Return the table of a command's arguments; empty without any."""
    formatter = argparse.HelpFormatter(parser.prog)

    def rows() -> Iterator[tuple[str, str]]:
        for action in parser._actions:
            kinds = (argparse._HelpAction, argparse._SubParsersAction)
            if action.help == argparse.SUPPRESS or isinstance(action, kinds):
                continue
            metavar = action.metavar if isinstance(action.metavar, str) else ""
            if action.choices and not metavar:
                metavar = "{" + ",".join(map(str, action.choices)) + "}"
            value = metavar or action.dest.upper()
            takes = action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction)
            names = ", ".join(action.option_strings)
            shown = f"{names} {value}" if names and takes else names or value
            meaning = formatter._expand_help(action) if action.help else ""
            yield f"`{shown}`", meaning.replace("[", "\\[")

    made = list(rows())
    return table(("argument", "meaning"), made) if made else ""


def command_lines(program: str) -> str:
    """Return a section for a program and one for each of its commands."""
    names = import_module(PROGRAMS[program]).COMMANDS
    parsers = {program: parser_of(program, [])}
    for name in names:
        parsers[f"{program} {name}"] = parser = parser_of(program, [name, "--help-all"])
        parsers |= {f"{program} {name} {action}": each for action, each in subparsers(parser).items()}
    parts: list[str] = []
    for title, parser in parsers.items():
        text = str(parser.description or "")
        parts += [
            f"{'##' if title == program else '###'} {title}",
            text[:1].upper() + text[1:].removesuffix(".") + ".",
            arguments(parser),
        ]
    return "\n\n".join(part for part in parts if part)


# -- settings --------------------------------------------------------------------------------------------


def configuration(name: str) -> str:
    """Return a file of configs/."""
    return f"```toml\n{(ROOT / 'configs' / name).read_text('utf-8').rstrip()}\n```"


def options(advanced: bool) -> str:
    """Return the table of the UCI options. advanced: of those that few users need."""

    def row(option: Setting) -> tuple[str, ...]:
        default = option.text(option.default)
        accepted = ", ".join(option.choices)
        if option.is_number:
            accepted = f"{shown_number(option.low)} to {shown_number(option.high)}"
        meaning = f"{option.help} ({accepted})" if accepted else option.help
        return f"`{option.title}`", f"`{option.name}`", f"`{default}`" if default else "", meaning

    chosen = (option for option in OPTIONS if option.advanced == advanced)
    return table(("option", "in files", "default", "meaning"), map(row, chosen))


def metrics() -> str:
    """Return the table of the metrics for Prometheus."""
    sensors = {"device": {"watts": 1.0, "celsius": 1.0}}
    state = State(True, 0, 0, {}, {}, {}, {}, device_sensors=sensors)

    def row(family: Any) -> tuple[str, ...]:
        labels = ", ".join(family._labelnames)
        name = family.name + "_total" * (family.type == "counter") + f"{{{labels}}}" * bool(labels)
        return f"`{name}`", family.type, family.documentation.removesuffix(".")

    return table(("metric", "type", "meaning"), map(row, registry(Metrics(), lambda: state).collect()))


def included_networks() -> str:
    """Return the table of the included networks, read from their files."""

    def row(name: str) -> tuple[str, ...]:
        network = describe(load_network(name))
        file, body, cost = network["file"], network["body"], network["cost"]
        return (
            f"`{name}`",
            f"{body['embedding_width']}x{body['encoder_layers']}",
            f"{cost['parameters']:,}",
            f"{1000 * cost['gflop_per_position']:.0f} MFLOP",
            f"{file['bytes'] / 1e6:.1f} MB",
            f"`{file['sha256']}`",
        )

    heads = ("name", "shape", "parameters", "a position", "file", "SHA-256 of the file")
    return table(heads, map(row, SHIPPED_NETWORKS))


GENERATED: dict[str, Callable[..., str]] = {
    r"fields of (\w+)": message,
    r"HTTP operations": operations,
    r"command lines of ([\w-]+)": command_lines,
    r"configs/([\w-]+\.toml)": configuration,
    r"metrics": metrics,
    r"included networks": included_networks,
    r"first options": lambda: options(advanced=False),
    r"further options": lambda: options(advanced=True),
}
"""The function for each kind of part. Its arguments are the groups of the pattern."""


def part(what: str) -> str:
    """Return a generated part. Raises KeyError if there is none of that name."""
    for pattern, make in GENERATED.items():
        if match := re.fullmatch(pattern, what):
            return make(*match.groups())
    raise KeyError(what)


def filled(text: str) -> str:
    """Return a page with its generated parts."""
    marked = r"^(<!-- generated: (.+?) -->)\n.*?^<!-- end -->"
    return re.sub(
        marked,
        lambda match: f"{match[1]}\n\n{part(match[2])}\n\n<!-- end -->",
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")

# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags that messages name as a remedy, and that the command which prints them lacks.

python -m scripts.messages
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from keyword import iskeyword
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
reference = import_module("scripts.reference_pages")

OURS = ("engine", "evaluator", "protocol", "training")
MESSAGE = re.compile(r"\w,? --[a-z]|--[a-z].* |--[a-z-]+:")
"""A text with a flag that is more than the flag."""
ELSEWHERE = re.compile(r"wavefront|`[\w-]+ --|^--[\w-]+ [A-Z]")
"""A text that names its command, or declares a flag."""

OTHERS = {
    ("engine.apps.games.journal", "--output"): "the loop of training keeps none of these journals",
    ("engine.apps.games.text", "--encoding"): "review alone gives an encoding",
    ("engine.apps.games.typed_moves", "--game"): "analyse alone reads the moves of a file there",
    ("engine.apps.match.configfile", "--player"): "tune makes the players of its matches",
    ("engine.apps.match.schedule", "--no-pairs"): "tune and self-play play an even number",
    ("engine.evaluation.link.failover", "--max-request"): "is of the service that is named",
    ("engine.options.lc0_names", "--config"): "answers `setoption`, which only the engine reads",
    ("evaluator.backends.gpu.driver.compiler", "--backend"): "is of the programs that play",
    ("evaluator.commands.devices", "--backend"): "is of the programs that use the device",
    ("protocol.common.http.access", ""): "the page of the service checks hosts alone",
    ("protocol.common.keys.files", "--keys"): "the message names the engine's option too",
    ("training.label.settings", "--engine-option"): "report starts no engine",
    ("training.label.engine", "--multipv"): "report reads the scores of labels alone",
}
"""Messages, by module and flag (empty: all), that commands without the flag do not print, or that name a
flag of another command. Each with its reason."""


FILES = {file.as_posix() for name in OURS for file in (ROOT / name).rglob("*.py")}
"""Ours, by exact names: some systems find a module by the name of its class."""


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the flags of a command and of its own commands."""
    own = {flag for action in parser._actions for flag in action.option_strings}
    return own.union(*map(flags_of, reference.subparsers(parser).values()))


def file_of(module: str) -> Path | None:
    """Return the file of one of our modules."""
    path = ROOT / module.replace(".", "/")
    return next(
        (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.as_posix() in FILES), None
    )


@cache
def read(module: str) -> tuple[set[str], list[str]]:
    """Return the modules that one imports when it runs, and its texts with flags, other than docstrings and
    texts that name their command."""
    file = file_of(module)
    assert file is not None
    tree = ast.parse(file.read_text("utf-8"))
    hidden: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            hidden.update(part for statement in node.body for part in ast.walk(statement))
        elif isinstance(node, ast.Expr):
            hidden.add(node.value)
    imports, texts = set(), []
    for node in ast.walk(tree):
        if node in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            imports |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    imports = {name for name in imports if name.split(".")[0] in OURS and file_of(name)}
    return imports, [text for text in texts if MESSAGE.search(text) and not ELSEWHERE.search(text)]


def modules_of(module: str) -> set[str]:
    """Return a command's module and all of ours that it can import, without other commands."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found and (name == module or ".commands." not in name):
            found.add(name)
            waiting += read(name)[0]
    return found


def unknown_flags() -> Iterator[str]:
    """Yield each flag in a message of a command that has it not, and the entries of OTHERS without use."""
    used = set()
    for program, cli in reference.PROGRAMS.items():
        for command in import_module(cli).COMMANDS:
            own = flags_of(reference.parser_of(program, [command]))
            package = f"{cli.removesuffix('.cli')}.commands"
            name = getattr(import_module(package), "GROUPED", {}).get(command) or command.replace("-", "_")
            for module in modules_of(f"{package}.{name}{'_' * iskeyword(name)}"):
                for text in read(module)[1]:
                    for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z\d-]+", text)) - own:
                        known = {(module, flag), (module, "")} & OTHERS.keys()
                        used |= known
                        if not known:
                            yield f"{program} {command} has no {flag}, which {module} names: {text!r}"
    yield from (f"OTHERS has {entry}, which no message needs" for entry in OTHERS.keys() - used)


if __name__ == "__main__":
    faults = sorted(unknown_flags())
    print("\n".join(faults) or "each flag in a message is one of its command")
    sys.exit(bool(faults))

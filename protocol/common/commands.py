# SPDX-License-Identifier: GPL-3.0-or-later
"""Subcommands of a program: modules with HELP, arguments and run(arguments) -> exit status.

ARGUMENTS declares the arguments, see `declare`. add_arguments(parser) adds what needs more than a table.
USAGE and EPILOG are the first and the last lines of the help.
"""

from __future__ import annotations

import re
import sys
from argparse import SUPPRESS, ArgumentParser, HelpFormatter, RawDescriptionHelpFormatter
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from argparse import Namespace, _ActionsContainer, _SubParsersAction

Declared = Mapping[str, "str | tuple[Callable[[str], Any], str] | Declared | Callable[[Any], None]"]
"""Help texts of arguments by their usage, or a reader of the value and the help text; and groups."""

_USAGE = re.compile(
    r"(?P<name>[\w-]+)(?P<marks>[*!]*)"
    r"(?: (?P<metavar>\S+?)(?P<nargs>[?*+]?)(?P<type>:int|:float|:Path)?)?(?: = (?P<default>.*))?"
)
_TYPES = {":int": int, ":float": float, ":Path": Path}


def declare(parser: _ActionsContainer, arguments: Declared) -> None:
    """Add arguments to a parser, given as usage: help.

    --json              a switch
    --nodes N           a flag with a value; N:int, N:float or N:Path give its type
    --nodes N = 400     a default, which gives the type
    --data! FILE        required
    --match* FLAG       may be repeated
    --moves MOVE*       several values; FILE+ is at least one
    --sprt RULE?        the value may be left out; then it is ""
    --preset {a,b}      choices
    file NAME           a positional argument, NAME in the help

    A title with a table, or with a function that adds to a group, is a group of arguments. Of a table below
    "" only one may be given.
    """
    for usage, text in arguments.items():
        if not isinstance(text, str | tuple):
            group = parser.add_argument_group(usage) if usage else parser.add_mutually_exclusive_group()
            text(group) if callable(text) else declare(group, text)
            continue
        part = _USAGE.fullmatch(usage)
        assert part is not None, usage
        settings = _settings(part)
        if isinstance(text, tuple):
            reader, text = text
            settings |= {"type": reader, "default": part["default"]}
        parser.add_argument(part["name"], help=text, **settings)


def _settings(part: re.Match[str]) -> dict[str, Any]:
    """Return the settings of argparse that a usage says."""
    is_flag, metavar, values = part["name"].startswith("-"), part["metavar"], part["nargs"]
    if is_flag and not metavar:
        return {"action": "store_true"}
    settings: dict[str, Any] = {"metavar": metavar, "nargs": values or None}
    if metavar and metavar.startswith("{"):
        settings |= {"metavar": None, "choices": tuple(metavar[1:-1].split(","))}
    if part["type"]:
        settings["type"] = _TYPES[part["type"]]
    if "*" in part["marks"]:
        settings["action"] = "append"
    if is_flag and (values in ("*", "+") or "*" in part["marks"]):
        settings["default"] = list[str]()
    if is_flag and values == "?":
        settings["const"] = ""
    if "!" in part["marks"]:
        settings["required"] = True
    if (default := part["default"]) is not None:
        with suppress(ValueError, SyntaxError):
            default = literal_eval(default)
        if isinstance(default, int | float):
            settings["type"] = type(default)
        settings["default"] = settings.get("type", str)(default)
    return settings


def add_arguments(parser: ArgumentParser, module: Any) -> None:
    """Add the arguments of a command."""
    declare(parser, getattr(module, "ARGUMENTS", {}))
    if add := getattr(module, "add_arguments", None):
        add(parser)


def add_commands(
    subparsers: _SubParsersAction[ArgumentParser],
    package: str,
    names: Sequence[str],
    words: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
) -> None:
    """Add the command of a package that `words` names, or all commands if they name none.

    names: see `module_of`. aliases: other spellings, by name. The parsed arguments have the command's
    function as `run`. The help of a module with FIRST shows these flags; --help-all in `words` shows all.
    """
    aliases = aliases or {}
    spellings = {name: name for name in names} | {other: name for name, other in aliases.items()}
    chosen = next((spellings[word] for word in words if word in spellings), None)
    for name in names if chosen is None else (chosen,):
        module = module_of(package, name)
        parser = subparsers.add_parser(
            name,
            aliases=[aliases[name]] if name in aliases else [],
            help=module.HELP,
            description=module.HELP,
            usage=getattr(module, "USAGE", None),
            epilog=getattr(module, "EPILOG", None),
            formatter_class=RawDescriptionHelpFormatter if hasattr(module, "EPILOG") else HelpFormatter,
            allow_abbrev=False,
        )
        add_arguments(parser, module)
        if first := getattr(module, "FIRST", ""):
            parser.add_argument("--help-all", action="help", help="show all options, and exit")
            for action in parser._actions if "--help-all" not in words else ():
                if action.option_strings and not {"--help", "--help-all", *first.split()} & {
                    *action.option_strings
                }:
                    action.help = SUPPRESS
        parser.set_defaults(run=module.run)


def module_of(package: str, name: str) -> Any:
    """Return the module of a command, or the object of a module that the package's GROUPED names for it.
    A module has underscores for hyphens, and one more after a keyword."""
    if group := getattr(import_module(package), "GROUPED", {}).get(name):
        return import_module(f"{package}.{group}").COMMANDS[name]
    return import_module(f"{package}.{name.replace('-', '_')}{'_' if iskeyword(name) else ''}")


def parse(
    parser: ArgumentParser, subparsers: _SubParsersAction[ArgumentParser], words: Sequence[str]
) -> Namespace:
    """Parse arguments for a parser whose command is stored as `command`.
    Unknown arguments are reported by the command that they were for. Raises SystemExit."""
    parsed, unknown = parser.parse_known_args(words)
    if unknown:
        refuse(subparsers.choices.get(parsed.command or "", parser), unknown)
    return parsed


def run_program(
    program: str, description: str, commands: tuple[str, Sequence[str]], words: Sequence[str], *, name: str
) -> int:
    """Run the command that `words` name, and return the exit status: 1 for a failure, 2 for a wrong setting.

    commands: the package and its commands, see `add_commands`. name: that messages begin with; {} is the
    command.
    """
    from protocol.common.printing import ReportedError
    from protocol.common.settings.spec import SettingsError

    parser = ArgumentParser(prog=program, description=description)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add_commands(subparsers, *commands, words[:1])
    parsed = parse(parser, subparsers, words)
    try:
        return int(parsed.run(parsed))
    except (ReportedError, SettingsError) as error:
        print(f"{name.format(parsed.command)}: {error}", file=sys.stderr)
        return 2 if isinstance(error, SettingsError) else 1


def refuse(parser: ArgumentParser, unknown: Sequence[str]) -> NoReturn:
    """Exit with status 2 for unknown arguments, and suggest the most similar flag."""
    from difflib import get_close_matches

    flags = sorted(flag for flag in parser._option_string_actions if flag.islower())
    near = [
        match
        for word in unknown
        for match in get_close_matches(word.partition("=")[0], flags, n=1, cutoff=0.7)
    ]
    hint = f"did you mean {near[0]}?" if near else "--help shows what there is"
    parser.error(f"unrecognized arguments: {' '.join(unknown)} ({hint})")

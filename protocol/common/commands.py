# SPDX-License-Identifier: GPL-3.0-or-later
"""Subcommands of a program: modules with HELP, add_arguments(parser) and run(arguments) -> exit status."""

from __future__ import annotations

from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction


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
            allow_abbrev=False,
        )
        module.add_arguments(parser)
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

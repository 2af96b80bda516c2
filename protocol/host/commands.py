"""Subcommands of a program: modules with HELP, add_arguments(parser) and run(arguments) -> exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction


def add_commands(
    subparsers: _SubParsersAction[ArgumentParser],
    package: str,
    names: Sequence[str],
    words: Sequence[str],
    *,
    aliases: Mapping[str, str] | None = None,
) -> None:
    """Add the one of a package's commands that words name, or all where they name none: --help lists them.

    names: of the commands; a module has underscores for hyphens, and one more after a keyword. aliases: other
    spellings, by name. What was parsed has the command's `run`.
    """
    aliases = aliases or {}
    spellings = {name: name for name in names} | {other: name for name, other in aliases.items()}
    chosen = next((spellings[word] for word in words if word in spellings), None)
    for name in names if chosen is None else (chosen,):
        module = import_module(f"{package}.{name.replace('-', '_')}{'_' if iskeyword(name) else ''}")
        parser = subparsers.add_parser(
            name,
            aliases=[aliases[name]] if name in aliases else [],
            help=module.HELP,
            description=module.HELP,
            allow_abbrev=False,
        )
        module.add_arguments(parser)
        parser.set_defaults(run=module.run)

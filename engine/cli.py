# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: UCI without a subcommand, otherwise a module of `engine/commands`, imported on use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from protocol.common import processes

if TYPE_CHECKING:
    from argparse import Namespace

COMMANDS = (
    "analyse",
    "analysis",
    "bench",
    "evaluate",
    "get",
    "lichess",
    "match",
    "options",
    "perft",
    "play",
    "review",
    "self-test",
    "selfplay",
    "tune",
    "web",
)
"""Modules of engine.commands."""

ALIASES = {"analyse": "analyze"}
"""Alternative spellings of commands."""


def console() -> NoReturn:
    """Run the console script."""
    processes.console(main)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0, 1 after a failure, 2 for invalid usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:  # GUIs wait for uciok: do not import argparse.
        from engine.uci.loop import run

        return run()

    from engine.options import OptionError
    from engine.options.flags import options_of_arguments, with_whole_fens
    from protocol.common.printing import ReportedError, say

    parsed = _parsed(with_whole_fens(words))
    if parsed is None:
        return 0
    if parsed.version:
        from engine import __version__

        print(f"Wavefront {__version__}")
        return 0
    try:
        if parsed.command is None:
            from engine.uci.loop import run

            return run(options_of_arguments(parsed))
        return int(parsed.run(parsed))
    except OptionError as error:
        print(f"wavefront: {error}", file=sys.stderr)
        return 2
    except ReportedError as error:
        say(f"wavefront {parsed.command}", str(error))
        return 1


def _parsed(words: list[str]) -> Namespace | None:
    """Return the parsed arguments; None if help was printed. Raises SystemExit for invalid arguments."""
    import argparse

    from engine.options.flags import engine_flags
    from protocol.common.commands import add_commands, declare, parse, refuse

    parser = argparse.ArgumentParser(
        prog="wavefront",
        usage="%(prog)s [OPTIONS] | %(prog)s COMMAND …",
        description="A UCI chess engine: without a command it speaks UCI on standard input and output.",
        allow_abbrev=False,
    )
    declare(
        parser,
        {
            "--version": "print the version and exit",
            "--help-all": "show the advanced options too, and exit",
        },
    )
    declare(parser, engine_flags(show_advanced="--help-all" in words))
    if not {*words} & {*COMMANDS, *ALIASES.values(), "-h", "--help"}:
        # With subparsers, argparse would take a misspelt flag's value for a command.
        flags = [word for word in parser.parse_known_args(words)[1] if word.startswith("-")]
        if flags:
            refuse(parser, flags)
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", prog=parser.prog)
    add_commands(subparsers, "engine.commands", COMMANDS, words, aliases=ALIASES)
    parsed = parse(parser, subparsers, words)
    before = words[: words.index(parsed.command)] if parsed.command else []
    if before and not parsed.help_all:
        parser.error(f"{' '.join(before)}: options of {parsed.command} are written behind it")
    if parsed.help_all:
        parser.print_help()
        return None
    return parsed


if __name__ == "__main__":
    console()

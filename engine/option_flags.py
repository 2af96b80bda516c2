# SPDX-License-Identifier: GPL-3.0-or-later
"""The options in the notations of users: command-line flags and the TOML file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import asdict

from engine.options import OPTIONS, Options
from protocol.settings import sources
from protocol.settings.spec import Setting, shown_number


def default_toml() -> str:
    """Return the commented TOML text of every option's default: `configs/engine.toml`."""

    def comment(option: Setting) -> list[str]:
        if option.is_number:
            return [f"{option.help} ({shown_number(option.low)} to {shown_number(option.high)})"]
        return [f"{option.help} ({', '.join(option.choices)})" if option.choices else option.help]

    heading = (
        "All options of the engine with their defaults. Use: `wavefront --config FILE`.",
        "Flags and `setoption` override the file.",
    )
    return sources.toml_text(OPTIONS, heading, comment)


def add_flags(
    parser: argparse.ArgumentParser,
    *,
    only: Iterable[str] | None = None,
    show_advanced: bool = False,
    defaults: Options | None = None,
) -> None:
    """Add a flag to a parser for every option (or those named in `only`), and `--config`.

    Flags also accept the UCI name: --RamLimitMb or --ram-limit-mb. defaults: shown in the help.
    """
    group = parser.add_argument_group("engine options")
    group.add_argument("--config", metavar="FILE", help="read options from a TOML file (configs/engine.toml)")
    sources.add_flags(
        group,
        OPTIONS if only is None else [option for option in OPTIONS if option.name in set(only)],
        show_advanced=show_advanced or only is not None,
        defaults=None if defaults is None else asdict(defaults),
        aliases={option.name: flag_aliases(option) for option in OPTIONS},
    )


def flag_aliases(option: Setting) -> list[str]:
    """Return alias flags of an option, from its UCI name; --network, as the evaluator has it, for weights."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", option.title).replace("_", "-").lower()
    flags = [f"--{option.title}", f"--{words}"]
    if option.name == "weights":
        flags.append("--network")
    return [flag for flag in dict.fromkeys(flags) if flag != option.flag]


def options_of_arguments(arguments: argparse.Namespace, options: Options | None = None) -> Options:
    """Return the options of parsed flags. Flags override the TOML file, which overrides the defaults.

    Raises OptionError.
    """
    return sources.from_arguments(arguments, options or Options())

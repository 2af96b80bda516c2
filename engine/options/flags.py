# SPDX-License-Identifier: GPL-3.0-or-later
"""The options in the notations of users: command-line flags and the TOML file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from engine.options import OPTIONS, Options
from protocol.common.commands import Declared, declare
from protocol.common.settings import sources
from protocol.common.settings.spec import Setting, shown_number

RUN_FLAGS = {
    "weights": "network file, wavefront-cpu or wavefront-gpu (default: chosen by device)",
    "backend": "what computes the network (default: auto)",
    "evaluator": "address of a running evaluator",
    "threads": "threads of the evaluator's CPU backend",
}
"""Options with a flag of their own in `match`, `selfplay` and `tune`, and their help."""

_FEN_FIELDS = tuple(map(re.compile, (r"[wb]", r"[A-Ha-hKQkq]{1,4}|-", r"[a-h][36]|-", r"\d+", r"\d+")))
"""Fields of a FEN after the board: side to move, castling, en passant, and two optional counters."""


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


def engine_flags(
    only: Iterable[str] | None = None, *, show_advanced: bool = False, defaults: Options | None = None
) -> Declared:
    """Return a group of flags for every option (or those named in `only`), and `--config`.

    Flags also accept the UCI name: --RamLimitMb or --ram-limit-mb. defaults: shown in the help.
    """
    chosen = OPTIONS if only is None else [option for option in OPTIONS if option.name in set(only)]

    def add(group: argparse._ActionsContainer) -> None:
        declare(group, {"--config FILE": "read options from a TOML file (configs/engine.toml)"})
        sources.add_flags(
            group,
            chosen,
            show_advanced=show_advanced or only is not None,
            defaults=None if defaults is None else asdict(defaults),
            aliases={option.name: flag_aliases(option) for option in OPTIONS},
        )

    return {"engine options": add}


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


def add_engine_flags(group: argparse._ArgumentGroup) -> None:
    for name, text in RUN_FLAGS.items():
        group.add_argument(f"--{name}", metavar=name.upper(), help=text)
    for alias in ("--network", "--WeightsFile"):
        group.add_argument(alias, dest="weights", help=argparse.SUPPRESS)


def with_whole_fens(words: Sequence[str]) -> list[str]:
    """Join the fields of a FEN after `--fen` to one word of the command line, as quotes would.

    A FEN has both counters or none: a single number after the fields is not a counter.
    """
    whole: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if whole and whole[-1] == "--fen" and "/" in word and " " not in word:
            fields = _fen_fields(rest)
            word = " ".join([word, *rest[:fields]])
            del rest[:fields]
        whole.append(word)
    return whole


def _fen_fields(words: Sequence[str]) -> int:
    """Return how many words are fields after a board: 0, 3 or 5."""
    matching = 0
    while matching < min(len(words), len(_FEN_FIELDS)) and _FEN_FIELDS[matching].fullmatch(words[matching]):
        matching += 1
    return {3: 3, 4: 3, 5: 5}.get(matching, 0)

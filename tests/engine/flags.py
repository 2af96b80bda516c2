# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags of commands, and those that documents name."""

import argparse
import re
from types import ModuleType

from protocol.common.commands import add_arguments


def parser_of(command: ModuleType) -> argparse.ArgumentParser:
    """Return a parser of a command's arguments."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, command)
    return parser


def flags_of(command: ModuleType) -> set[str]:
    """Those of a command."""
    return {flag for action in parser_of(command)._actions for flag in action.option_strings}


def flags_named(text: str) -> set[str]:
    """Those that a text names in full."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))

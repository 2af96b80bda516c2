# SPDX-License-Identifier: GPL-3.0-or-later
"""A parser of a command."""

import argparse
from types import ModuleType

from protocol.common.commands import add_arguments


def parser_of(command: ModuleType) -> argparse.ArgumentParser:
    """Return a parser of a command's arguments."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, command)
    return parser

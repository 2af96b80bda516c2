# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags of commands, and those that documents name."""

import argparse
import re
from collections.abc import Callable


def flags_of(add_arguments: Callable[[argparse.ArgumentParser], None]) -> set[str]:
    """Those of a command."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return {flag for action in parser._actions for flag in action.option_strings}


def flags_named(text: str) -> set[str]:
    """Those that a text names in full."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))

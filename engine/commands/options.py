# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront options`: print the default of every option as a commented TOML file."""

from __future__ import annotations

import argparse

HELP = "print a configuration file with the default of every option"


def run(arguments: argparse.Namespace) -> int:
    from engine.options.flags import default_toml

    print(default_toml(), end="")
    return 0

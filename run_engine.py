#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry point of a checkout, same as `wavefront`: the UCI engine or, with a subcommand, its tools."""

from wavefront_launcher import start

if __name__ == "__main__":
    start("engine")

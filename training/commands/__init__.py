# SPDX-License-Identifier: GPL-3.0-or-later
"""Subcommands of `wavefront-training`, one per file: HELP, ARGUMENTS, run."""

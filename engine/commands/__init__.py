# SPDX-License-Identifier: GPL-3.0-or-later
"""The subcommands of `wavefront`, one per file, each with HELP, ARGUMENTS and run."""

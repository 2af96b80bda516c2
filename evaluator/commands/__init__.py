# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of `python -m evaluator`, one module each."""

GROUPED = dict.fromkeys(("load", "unload", "reload", "alias", "drain"), "admin")
"""Modules that hold several commands in COMMANDS, by command."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of others, made fit for people's terminals, logs and files."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line, with "?" for each control character: it commands nothing in a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)

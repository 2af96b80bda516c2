# SPDX-License-Identifier: GPL-3.0-or-later
"""Untrusted text for terminals, logs and files."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with "?" for unprintable characters: one line, no control of a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def reason(error: Exception) -> str:
    """Return the message of an error, without the number and file of an operating-system error."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)

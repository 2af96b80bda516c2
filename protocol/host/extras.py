"""What is not installed with the program, but with an extra of it."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that installs an extra, for messages."""
    return f"pip install '.[{extra}]' in the checkout"

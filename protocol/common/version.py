# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of the project: of the distribution, the engine and the evaluator."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__version__ = "0.2.0"


@cache
def git_hash() -> str:
    """Return the commit of the checkout that the program runs in, 40 hex digits; empty outside a checkout."""
    try:
        folder = Path(__file__).parents[2] / ".git"
        if folder.is_file():  # a worktree
            folder = folder.parent / folder.read_text("utf-8").removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text("utf-8").strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        common = folder / "commondir"
        if common.exists():
            folder = folder / common.read_text("utf-8").strip()
        if (folder / name).exists():
            return (folder / name).read_text("utf-8").strip()
        lines = (folder / "packed-refs").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")

# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the tables of fields in docs/reference/protocol.md, from the declarations in protocol/messages.py:

    python scripts/protocol_tables.py

A table follows each line `<!-- fields: TYPE -->`.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

from protocol.fields import Field
from protocol.messages import REPLIES, REQUESTS, NetworkInfo, first_frame

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "reference" / "protocol.md"


SHORTER = (
    (r"^an? ", ""),
    (r" of at most (\d+) characters", r" ≤ \1"),
    (r" of at most (\d+), each an?", r" ≤ \1 of"),
    (r" of at most (\d+), each", r" ≤ \1 of"),
    (r" of at least (\d+)", r" ≥ \1"),
    (r" from (\d+) to (\d+)", r" \1–\2"),
    (r" with text keys", ""),
)
"""Parts of the words of a kind, and what the tables write for them."""


def short(words: str) -> str:
    """Return the words of a kind as a table has them."""
    for pattern, replacement in SHORTER:
        words = re.sub(pattern, replacement, words)
    return words


def row(field: Field, default: object) -> str:
    """Return the row of a field. default: its value if missing; empty values are omitted."""
    name = f"`{field.name}`" + (" (optional)" if field.optional else "")
    default = f" (default: {default})" if field.optional and default else ""
    return f"| {name} | {short(field.kind.words)} | {field.meaning}{default} |"


def table(name: str) -> str:
    """Return the table of a message's fields, without `id`. name: its type, or network."""
    declaring = {"network": NetworkInfo, **REQUESTS, **REPLIES}[name]
    defaults = {each.name: each.default for each in fields(declaring) if each.default is not MISSING}
    rows = [row(each, defaults.get(each.attribute)) for each in first_frame(declaring) if each.name != "id"]
    return "\n".join([f"| field of {name} | type | meaning |", "|---|---|---|", *rows])


def filled(text: str) -> str:
    """Return the document with tables generated from the messages."""
    marked = r"^(<!-- fields: (\w+) -->\n\n)(?:\|.*\n)*"
    return re.sub(marked, lambda match: f"{match[1]}{table(match[2])}\n", text, flags=re.MULTILINE)


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text("utf-8")), "utf-8")

# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the operations in docs/reference/http.md, from the OpenAPI document:

    python scripts/http_reference.py

They are between the lines `<!-- operations -->` and `<!-- end of operations -->`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from engine.web.openapi import document

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "reference" / "http.md"


def operation(path: str, method: str, described: dict[str, Any]) -> str:
    """Return the section of an operation."""
    codes = ", ".join(described["responses"])
    lines = [f"### `{method.upper()} {path}`", "", f"{described['summary']} Answers: {codes}.", ""]
    body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if path == "/api/v1/analyse":
        lines += ["The body is a [query](analysis.md#queries), or `queries`: a list of queries.", ""]
    elif body:
        lines += ["| field | type | meaning |", "|---|---|---|"]
        required = body.get("required", ())
        for name, field in body["properties"].items():
            kind = field.get("type", "list of FENs or positions" if name == "positions" else "")
            meaning = field.get("description", "").replace("|", "\\|")
            lines.append(f"| `{name}`{' (required)' if name in required else ''} | {kind} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def filled(text: str) -> str:
    """Return the page with the operations of the document."""
    sections = [
        operation(path, method, described)
        for path, methods in document()["paths"].items()
        for method, described in methods.items()
    ]
    made = "<!-- operations -->\n\n" + "\n".join(sections) + "\n<!-- end of operations -->"
    return re.sub(r"<!-- operations -->.*<!-- end of operations -->", lambda _: made, text, flags=re.DOTALL)


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text("utf-8")), "utf-8")

# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/reference/http.md has the operations that there are."""

from __future__ import annotations

from scripts.http_reference import DOCUMENT, filled


def test_reference_has_the_operations_of_the_document() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert text == filled(text), "run scripts/generate"

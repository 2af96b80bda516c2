# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of fields in docs/reference/protocol.md are what the messages declare."""

from __future__ import annotations

from importlib import import_module

import pytest

from protocol.messages import REPLIES, REQUESTS, first_frame

tables = import_module("scripts.protocol_tables")


def test_the_document_has_the_tables_that_the_script_writes() -> None:
    text = tables.DOCUMENT.read_text("utf-8")
    assert tables.filled(text) == text


@pytest.mark.parametrize("name", ["network", *REQUESTS, *REPLIES])
def test_the_document_has_a_table_for_each_message_with_fields(name: str) -> None:
    has_fields = name == "network" or len(first_frame({**REQUESTS, **REPLIES}[name])) > 1
    assert (f"<!-- fields: {name} -->" in tables.DOCUMENT.read_text("utf-8")) == has_fields

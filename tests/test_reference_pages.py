# SPDX-License-Identifier: GPL-3.0-or-later
"""The generated parts of docs/reference are what the code declares."""

from importlib import import_module
from pathlib import Path

import pytest

from protocol.wire.messages import REPLIES, REQUESTS, first_frame
from tests.paths import REPOSITORY

reference = import_module("scripts.reference_pages")
generated = import_module("scripts.generated")


@pytest.mark.parametrize("page", reference.PAGES, ids=lambda page: page.name)
def test_page_has_the_parts_that_the_script_writes(page: Path) -> None:
    text = page.read_text("utf-8")
    assert reference.filled(text) == text, "run scripts/generate"


@pytest.mark.parametrize("file", [file for file in generated.TEXTS if file.startswith("configs/")])
def test_configuration_is_what_the_script_writes(file: str) -> None:
    assert (REPOSITORY / file).read_text("utf-8") == generated.TEXTS[file](), "run scripts/generate"


@pytest.mark.parametrize("name", ["network", *REQUESTS, *REPLIES])
def test_page_has_a_table_for_each_message_with_fields(name: str) -> None:
    has_fields = name == "network" or len(first_frame({**REQUESTS, **REPLIES}[name])) > 1
    text = (REPOSITORY / "docs" / "reference" / "protocol.md").read_text("utf-8")
    assert (f"<!-- generated: fields of {name} -->" in text) == has_fields


def test_page_has_a_section_for_each_command_and_flag() -> None:
    text = (REPOSITORY / "docs" / "reference" / "command-lines.md").read_text("utf-8")
    for program in reference.PROGRAMS:
        for command in import_module(reference.PROGRAMS[program]).COMMANDS:
            assert f"\n### {program} {command}\n" in text
    assert "### wavefront-evaluator keys allow" in text and "| `--sprt " in text

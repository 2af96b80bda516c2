# SPDX-License-Identifier: GPL-3.0-or-later
"""Links of the documents lead to files, and paths in code are paths of the repository."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

DOCUMENTS = [
    *sorted(REPOSITORY.glob("*.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted(REPOSITORY.glob("[!.]*/**/README.md")),
]
figures = import_module("scripts.figures")
FOLDERS = sorted(path.name for path in REPOSITORY.iterdir() if (path / "__init__.py").exists())
FOLDERS += ["benchmarks", "configs", "docs", "scripts", "tests"]


def name_of(document: Path) -> str:
    return str(document.relative_to(REPOSITORY))


def fragments(document: Path, pattern: str) -> list[str]:
    found = re.findall(pattern, document.read_text("utf-8"))
    return sorted(set(found))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files(document: Path) -> None:
    links = fragments(document, r"\]\((?!http|#)([^)#\s]+)")
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_paths_are_there(document: Path) -> None:
    pattern = rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]+)`"
    paths = [path for path in fragments(document, pattern) if "NAME" not in path]
    assert [path for path in paths if not list(REPOSITORY.glob(path.rstrip("/")))] == []


def test_figures_are_those_of_what_ships() -> None:
    assert list(figures.problems(figures.ROWS, figures.of_checkout())) == []


def test_figures_without_a_row_or_of_another_network_are_named() -> None:
    rows = [row for row in figures.ROWS if row["page"] != "README.md"]
    found = "\n".join(figures.problems(rows, {**figures.of_checkout(), "wavefront-cpu": "another"}))
    assert re.search("How strong.* another wavefront-cpu .* python -m benchmarks.strength.ladder", found)
    assert "README.md, section 'On a GPU' has figures" in found

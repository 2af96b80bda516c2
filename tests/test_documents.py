"""What the documents name is there: links lead to files, and paths in code are paths of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
FOLDERS = sorted(path.name for path in REPOSITORY.iterdir() if (path / "__init__.py").exists())
FOLDERS += ["benchmarks", "configs", "docs", "scripts", "tests"]


def fragments(document: Path, pattern: str) -> list[str]:
    found = re.findall(pattern, document.read_text("utf-8"))
    return sorted(set(found))


def missing(paths: list[str], folder: Path) -> list[str]:
    return [path for path in paths if not list(folder.glob(path.rstrip("/")))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_to_files(document: Path) -> None:
    links = fragments(document, r"\]\((?!http|#)([^)#\s]+)")
    assert missing([link for link in links if not link.startswith("..")], document.parent) == []
    above = [link.removeprefix("../") for link in links if link.startswith("../")]
    assert missing(above, REPOSITORY) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_paths_are_there(document: Path) -> None:
    pattern = rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]+)`"
    paths = [path for path in fragments(document, pattern) if "NAME" not in path]
    assert missing(paths, REPOSITORY) == []


def test_the_index_lists_every_document() -> None:
    index = (REPOSITORY / "docs" / "README.md").read_text("utf-8")
    documents = [document.name for document in DOCUMENTS[1:] if document.name != "README.md"]
    assert documents
    assert [name for name in documents if f"[{name}]({name})" not in index] == []

# SPDX-License-Identifier: GPL-3.0-or-later
"""The site of the documentation builds without a warning and loads nothing from other hosts."""

import os
import sys
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.programs import run

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements with which a browser loads what an attribute names."""


class Assets(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in LOADED and values.get("rel") != "canonical":
            self.found.append(values.get(LOADED[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="needs pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder)
    run(*command, cwd=REPOSITORY, timeout=300, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assets = Assets()
        assets.feed(page.read_text("utf-8"))
        assert [name for name in assets.found if "//" in name] == [], page


def test_diagrams_are_what_the_script_draws() -> None:
    for name, draw in import_module("scripts.diagrams").DIAGRAMS.items():
        assert (REPOSITORY / "docs" / "images" / f"{name}.svg").read_text("utf-8") == draw(), name

# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks of mkdocs.yml: pages from outside docs/, and links that leave docs/.

A link to a file outside docs/ becomes a link to its page (PAGES) or, without one, plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "evaluator/networks/README.md": "reference/networks.md",
    "engine/core/tree/README.md": "explanation/modules/tree.md",
    "engine/core/exchange/README.md": "explanation/modules/exchange.md",
    "evaluator/core/device_loop/README.md": "explanation/modules/device_loop.md",
    "protocol/core/zmtp/README.md": "explanation/modules/zmtp.md",
    "benchmarks/README.md": "lab/benchmarks.md",
    "benchmarks/RESULTS.md": "lab/results.md",
}
"""Files outside docs/ and their pages."""

CONFIGURATION = "reference/configuration.md"
"""The page with all files of configs/."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages whose source is outside docs/."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        if source.endswith(".md") and (ROOT / source).exists() and files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links to pages of the site."""
    own = page.file.src_uri
    source = next(
        (name for name, made in PAGES.items() if made == own and name.endswith(".md")), f"docs/{own}"
    )

    def led(match: re.Match[str]) -> str:
        text, target, mark = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = path.removeprefix("docs/") if path.startswith("docs/") else PAGES.get(path, "")
        if path.startswith("configs/"):
            place = CONFIGURATION
        if not place or files.get_file_from_path(place) is None:
            return match[0] if path.startswith("docs/") else text
        return f"[{text}]({posixpath.relpath(place, posixpath.dirname(own) or '.')}{mark})"

    return re.sub(r"\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)", led, markdown)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Hooks of mkdocs.yml: generated parts of pages, and links that leave docs/.

A line `<!-- generated: WHAT -->` of a page is replaced by the result of GENERATED[WHAT]. A link to a file
outside docs/ becomes a link to its page (PAGES) or, without one, plain text.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

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

PROGRAMS = {
    "wavefront": "engine.cli",
    "wavefront-evaluator": "evaluator.cli",
    "wavefront-training": "training.cli",
}


def help_of(program: str, arguments: list[str]) -> str:
    """Return a program's output for `--help`, 80 columns wide."""
    os.environ["COLUMNS"] = "80"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        import_module(PROGRAMS[program]).main([*arguments, "--help"])
    return printed.getvalue().rstrip()


def command_lines(program: str) -> str:
    """Return a section for a program and one for each of its commands."""
    top = help_of(program, [])
    parts = [f"## {program}", fenced(top)]
    for command in import_module(PROGRAMS[program]).COMMANDS:
        parts += [f"### {program} {command}", fenced(help_of(program, [command]))]
    return "\n\n".join(parts)


def configuration() -> str:
    """Return all files of configs/, each below its name."""
    files = sorted((ROOT / "configs").glob("*.toml"))
    return "\n\n".join(f"## {file.name}\n\n{fenced(file.read_text('utf-8'), 'toml')}" for file in files)


def fenced(text: str, language: str = "text") -> str:
    """Return a code block."""
    return f"```{language}\n{text.rstrip()}\n```"


GENERATED: dict[str, Callable[[], str]] = {
    **{f"command lines of {program}": lambda name=program: command_lines(name) for program in PROGRAMS},  # type: ignore[misc]
    "configuration files": configuration,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages whose source is outside docs/."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        if source.endswith(".md") and (ROOT / source).exists() and files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Insert generated parts, and redirect links to pages of the site."""
    markdown = re.sub(r"<!-- generated: (.+?) -->", lambda match: GENERATED[match[1]](), markdown)
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

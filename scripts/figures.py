# SPDX-License-Identifier: GPL-3.0-or-later
"""Quoted figures and what they were measured with: benchmarks/figures.toml.

python scripts/figures.py            prints rows whose figures have to be measured again
python scripts/figures.py COMMIT     prints the digests of a commit, for a new row (HEAD: of what ships)
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROWS: list[dict[str, Any]] = tomllib.loads((ROOT / "benchmarks/figures.toml").read_text("utf-8"))["figures"]

PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "benchmarks/RESULTS.md")),
    ROOT / "evaluator" / "networks" / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "lab" not in path.parts),
]
"""Pages whose figures need rows. The lab notes are dated trials."""

FIGURE = re.compile(r"\d ± \d|(positions|nodes|evaluations)/s")
"""What makes a section one of figures. Each section of the results is one."""

DATED = re.compile(r"20\d\d-\d\d-\d\d|commit `?[0-9a-f]{7}|predecessor|first network")
"""Words of a section that is of the past."""

MODULE = re.compile(r"(?<!; )python -m ((?:benchmarks|scripts)\.[\w.]+\w)")
"""A command of this checkout. That of another one is after a `;`."""

Read = Callable[[str], bytes]


def shipped(path: str) -> bytes:
    """Return a file of this checkout."""
    return (ROOT / path).read_bytes()


def kernels(read: Read, names: list[str]) -> bytes:
    """Return the code of the kernels without comments and spaces."""
    texts = {name: re.sub(r"/\*.*?\*/|//[^\n]*", "", read(name).decode(), flags=re.DOTALL) for name in names}
    return "\0".join(f"{name.rpartition('/')[2]} {''.join(texts[name].split())}" for name in names).encode()


def search(read: Read) -> bytes:
    """Return the defaults that choose nodes, moves and time, and the constants of the included networks."""
    options = tomllib.loads(read("configs/engine.toml").decode())
    defaults = {name: options[name] for name in ("batching", "search", "choice", "time")}
    constants = read("engine/search/player/network_constants.py").decode()
    own = re.findall(r"^(ON_\w+).*?= (\{.*?\})$", constants, re.MULTILINE | re.DOTALL)
    return json.dumps([defaults, own], sort_keys=True).encode()


def levels(read: Read, strong: bool) -> bytes:
    """Return the Elo, nodes and temperatures of levels below 2300, or of the strong ones."""
    text = read("engine/search/strength/levels.py").decode()
    rows = re.findall(r"^    \((\d+), (.+)\),$", text, re.MULTILINE)
    return repr([row for row in rows if (int(row[0]) > 2300) == strong]).encode()


def review(read: Read) -> bytes:
    """Return the scale, thresholds and searches of reviews."""
    texts = [read(f"engine/apps/review/{name}.py").decode() for name in ("scale", "judging", "searching")]
    return repr(re.findall(r"^[A-Z_]+(?:, [A-Z_]+)* = .+$", "\n".join(texts), re.MULTILINE)).encode()


def digests(read: Read, kernel_files: list[str]) -> dict[str, str]:
    """Return the digests of what figures depend on."""
    folder = "evaluator/networks/wavefront"
    contents = {
        "wavefront-cpu": read(f"{folder}-cpu.pb.gz"),
        "wavefront-gpu": read(f"{folder}-gpu.pb.gz"),
        "review": review(read),
        "roundings": read(f"{folder}-cpu.int8.npz") + read(f"{folder}-gpu.int8.npz"),
        "kernels": kernels(read, kernel_files),
        "search": search(read),
        "levels": levels(read, strong=False),
        "strong levels": levels(read, strong=True),
    }
    return {name: hashlib.sha256(content).hexdigest()[:12] for name, content in contents.items()}


def of_commit(commit: str) -> dict[str, str]:
    """Return the digests of a commit. Raises CalledProcessError if it lacks one of the files."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout

    names = git("ls-tree", "-r", "--name-only", commit, "evaluator/backends/gpu/kernels/").decode().split()
    return digests(lambda path: git("show", f"{commit}:{path}"), sorted(names))


def of_checkout() -> dict[str, str]:
    """Return the digests of what ships."""
    folder = ROOT / "evaluator" / "backends" / "gpu" / "kernels"
    names = [f"evaluator/backends/gpu/kernels/{path.name}" for path in folder.iterdir()]
    return digests(shipped, sorted(name for name in names if name.endswith((".h", ".hip"))))


def module_exists(name: str) -> bool:
    """Return whether a module of this checkout has a file."""
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def sections(text: str) -> dict[str, str]:
    """Return the text below each heading, up to the next one. The empty heading is the start of the page."""
    comments = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    text = comments.sub(lambda block: block[0].replace("\n#", "\n"), text)
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    found: dict[str, str] = {}
    for heading, below in zip(["", *parts[1::2]], parts[::2], strict=True):
        found[heading] = found.get(heading, "") + below
    return found


def problems(rows: Sequence[dict[str, Any]], now: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with the rows, and the figures that have none.

    rows: those of figures.toml. now: the digests of what ships.
    """
    pages = {page.relative_to(ROOT).as_posix(): sections(page.read_text("utf-8")) for page in PAGES}
    covered = set()
    for row in rows:
        where = f"{row['page']}, section {row['section']!r}"
        text = pages[row["page"]].get(row["section"])
        if text is None or row.get("text", "") not in " ".join(text.split()):
            yield f"{where} is gone, or lacks {row.get('text', '')!r}: correct or remove its row"
            continue
        covered.add((row["page"], row["section"]))
        for name, digest in row["with"].items():
            if "history" in row:
                continue
            if now[name] != digest:
                yield f"{where} was measured with another {name} ({digest}, now {now[name]}): {row['again']}"
        if "history" in row and not DATED.search(text):
            yield f"{where} is of the past ({row['history']}), but gives no date"
        if (command := MODULE.search(row.get("again", ""))) and not module_exists(command[1]):
            yield f"{where} is measured by {command[0]}, which is gone"
    for page, found in pages.items():
        for section, text in found.items():
            for command in MODULE.finditer(text):
                if not module_exists(command[1]):
                    yield f"{page}, section {section!r} names {command[0]}, which is gone"
            figures = FIGURE.search(text) or (page.endswith("RESULTS.md") and "|" in text)
            if figures and (page, section) not in covered:
                yield f"{page}, section {section!r} has figures, but no row in benchmarks/figures.toml"


if __name__ == "__main__":
    if sys.argv[1:]:
        print("\n".join(f'{name} = "{digest}"' for name, digest in of_commit(sys.argv[1]).items()))
    else:
        found = list(problems(ROWS, of_checkout()))
        print("\n".join(found) or "all figures are of what ships, or of a named day")
        sys.exit(bool(found))

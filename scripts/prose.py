# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the prose of documents, messages, docstrings, comments and test names: `scripts/prose.py [--count]`.

Fails if a text has a phrase of WRONG, if the name of a test has one or begins with a relative clause, or if a
document has a sentence of more than MOST_WORDS words outside tables, code and quotations. --count prints how
often each phrase occurs, the words of the documents and the mean length of a sentence.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WRONG = (
    "begun anew",
    "cut off",
    "done again",
    "gone on with",
    "hung up on",
    "is said",
    "is told",
    "are told",
    "looked at again",
    "of who has",
    "passed over",
    "under way",
    "what cannot",
    "whoever",
    "who has been",
    "will not have it",
)
"""Phrases that are wrong in any context. STYLE: name the actor and use the field's verb."""

RELATIVE = re.compile("(what|who|whoever|whose|where|which|whatever) ")
"""Begins a relative clause, which is no subject of a test."""

MOST_WORDS = 30
"""Maximum words in a sentence of a document."""

SOURCES = ("*.py", "*.cc", "*.h", "*.hip", "*.toml", "*.md", "*.js", "*.html", "*.yml", "*.json")
EXCLUDED = ("scripts/prose.py", "docs/lab/", "benchmarks/RESULTS.md", "tests/")
"""Lab notes keep the words of their time."""


ALWAYS = ("|", "#", ">", "```", "<!--", "![", ":::")
NOT_PROSE = ("[",)
"""Starts of lines that are not prose, the second only outside a paragraph."""


def tracked(*patterns: str, excluded: tuple[str, ...] = EXCLUDED) -> list[Path]:
    """Return the repository's files that match one of the patterns."""
    names = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / name for name in names if not name.startswith(excluded) and (ROOT / name).exists()]


def phrases(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and phrase of each match of WRONG in a file. A phrase may continue on the next line."""
    text = path.read_text("utf-8")
    # Comment signs at the beginning of a line do not separate words, nor do quotes around parts of a message.
    flat = re.sub(r"\"?\n[ \t]*(?://|#|\*|f?\")?[ \t]*", lambda match: " " * len(match[0]), text)
    for wrong in WRONG:
        pattern = r"\b" + r"\s+".join(map(re.escape, wrong.split())) + r"\b"
        for match in re.finditer(pattern, flat, re.IGNORECASE):
            yield text.count("\n", 0, match.start()) + 1, wrong


def test_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and words of the names of a file's tests."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if match := re.match(r"(?:async )?def test_(\w+)", line):
            yield number, match[1].replace("_", " ")


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of a document's sentences, without tables, code, quotations and headings."""
    block: list[str] = []
    began, fenced = 1, False
    for number, line in enumerate([*path.read_text("utf-8").splitlines(), ""], 1):
        bare = line.strip()
        if bare.startswith("```"):
            fenced = not fenced
        if not block and line.startswith("    "):  # Indented code, or more of a list's item.
            continue
        if fenced or not bare or (not block and bare.startswith(NOT_PROSE)) or bare.startswith(ALWAYS):
            yield from split(began, block)
            block = []
        elif re.match(r"(?:[-*+]|\d+\.) ", bare):
            yield from split(began, block)
            began, block = number, [re.sub(r"^(?:[-*+]|\d+\.) ", "", bare)]
        else:
            began = began if block else number
            block.append(bare)


def split(line: int, block: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a paragraph."""
    text = re.sub(r"`[^`]*`", "Code", " ".join(block))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z(*\"`0-9])", text):
        if sentence:
            yield line, sentence


def words_of(text: str) -> int:
    """Return the number of words in a text."""
    return len(re.findall(r"[\w'%/.,-]*\w[\w'%/.,-]*", text))


def main() -> int:
    """Check or count, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", action="store_true", help="print counts instead of errors")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    errors = []
    for path in tracked(*SOURCES):
        for line, wrong in phrases(path):
            counts[wrong] += 1
            errors.append(f"{path.relative_to(ROOT)}:{line}: '{wrong}'")
    for name in subprocess.run(
        ["git", "ls-files", "tests/*.py"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split():
        for line, words in test_names(ROOT / name):
            found = [wrong for wrong in WRONG if re.search(rf"\b{wrong}\b", words)]
            if found or RELATIVE.match(words):
                errors.append(f"{name}:{line}: test name: '{words}'")
    lengths = []
    for path in tracked("*.md"):
        for line, sentence in sentences(path):
            lengths.append(words_of(sentence))
            if lengths[-1] > MOST_WORDS:
                errors.append(f"{path.relative_to(ROOT)}:{line}: {lengths[-1]} words: {sentence[:60]}…")
    if arguments.count:
        for wrong in WRONG:
            print(f"{counts[wrong]:6} {wrong}")
        documents = tracked("*.md")
        words = sum(words_of(path.read_text("utf-8")) for path in documents)
        long = sum(length > MOST_WORDS for length in lengths)
        print(f"{words:6,} words in {len(documents)} documents")
        print(f"{sum(lengths) / max(1, len(lengths)):6.1f} words in a sentence")
        print(f"{long:6} of {len(lengths)} sentences above {MOST_WORDS} words")
        return 0
    print("\n".join(errors), end="\n" if errors else "")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

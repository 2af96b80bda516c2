# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurable states of a git repository: its commits and the current working tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType


class RevisionError(Exception):
    """No git repository, or no such commit. The message gives the remedy."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A state of the sources. commit, tree: git's full hashes. For a changed working tree, `tree` is that of
    its files and `commit` its base. date: of the commit, in ISO 8601."""

    commit: str
    tree: str
    subject: str
    date: str
    changed: bool = False

    @property
    def name(self) -> str:
        return self.commit[:8] + "+changes" * self.changed


class Repository:
    """A git repository, which is never written to: the working tree's objects are in a temporary folder.

    A context manager that removes that folder.
    """

    def __init__(self, folder: Path) -> None:
        """Raises RevisionError if the folder is not a checkout or git is missing."""
        self._folder = folder
        if shutil.which("git") is None:
            raise RevisionError("there is no git here: install it (apt-get install git)")
        try:
            self._folder = Path(self._git("rev-parse", "--show-toplevel"))
            objects = self._git("rev-parse", "--path-format=absolute", "--git-path", "objects")
        except RevisionError:
            raise RevisionError(
                f"{folder} is not a git checkout, so no other commit can be built: clone the repository "
                "(an archive of it has no history)"
            ) from None
        self._own = tempfile.TemporaryDirectory(prefix="benchmark-tree-")
        own_objects = Path(self._own.name) / "objects"
        own_objects.mkdir()
        self._beside = {
            "GIT_INDEX_FILE": str(Path(self._own.name) / "index"),
            "GIT_OBJECT_DIRECTORY": str(own_objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
        }

    def __enter__(self) -> Repository:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own.cleanup()

    def commit(self, text: str) -> Revision:
        """Return the commit that a hash, tag, branch or HEAD~3 names. Raises RevisionError."""
        try:
            found = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
        except RevisionError:
            raise RevisionError(
                f"{text} is no commit of {self._folder}: `git log --oneline --all` lists them; `git fetch` "
                "brings new ones, with --unshallow those that a shallow clone lacks"
            ) from None
        return self._revision(found)

    def working_tree(self) -> Revision:
        """Return the current files, including untracked ones that git does not ignore."""
        head = self.commit("HEAD")
        self._git("read-tree", head.commit, variables=self._beside)
        self._git("add", "--all", variables=self._beside)
        tree = self._git("write-tree", variables=self._beside)
        if tree == head.tree:
            return head
        return Revision(head.commit, tree, head.subject, head.date, changed=True)

    def write_files(self, revision: Revision, folder: Path) -> None:
        """Write the files of a revision into a folder."""
        self._git("read-tree", revision.tree, variables=self._beside)
        self._git("checkout-index", "--all", "--force", f"--prefix={folder}{os.sep}", variables=self._beside)

    def _revision(self, commit: str) -> Revision:
        told = self._git("show", "--no-patch", "--format=%H%n%T%n%s%n%cI", commit)
        full, tree, subject, date = told.split("\n")
        return Revision(full, tree, subject, date)

    def _git(self, *arguments: str, variables: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self._folder,
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise RevisionError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.rstrip("\n")

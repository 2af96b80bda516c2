# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD kernels that are shipped compiled, so that a driver without a compiler suffices.

`python -m scripts.code_objects` makes one archive for all GPUs. It is a ZIP file with a member for each
family of targets: xz of msgpack {digest: code object}. A digest covers source, options and family. The code
of a family runs on all of its members; only the names in its headers differ, and are replaced before loading.
"""

from __future__ import annotations

import hashlib
import logging
import lzma
import threading
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgpack

from evaluator.backends.common.caching import cached_file

log = logging.getLogger(__name__)

ARCHIVE = "amd-code-objects.zip"

MACHINES = {
    "gfx1030": {f"gfx103{i}": each for i, each in enumerate((0x36, 0x37, 0x38, 0x39, 0x3E, 0x3D, 0x45))},
    "gfx1100": {"gfx1100": 0x41, "gfx1101": 0x46, "gfx1102": 0x47, "gfx1103": 0x44}
    | {"gfx1150": 0x43, "gfx1151": 0x4A, "gfx1152": 0x55, "gfx1153": 0x58},
    "gfx1200": {"gfx1200": 0x48, "gfx1201": 0x4E},
    "gfx90a": {"gfx90a": 0x3F},
    "gfx942": {"gfx942": 0x4C},
}
"""Families, named for the target that is compiled, with EF_AMDGPU_MACH of their members (LLVM's AMDGPU user
guide, "ELF Code Object"). Members of gfx1030 and of gfx1200 have the same code. gfx1100 needs the workarounds
of all of its family, as LLVM's gfx11-generic does, which runtimes before ROCm 6.3 do not load. For gfx950
(MI350), which clang 19 does not know, ROCm compiles at the first start."""

_FLAGS_AT = 48
"""Offset of e_flags in an ELF header; EF_AMDGPU_MACH is its lowest byte."""


def family(target: str) -> str:
    """Return the family of a target; empty if nothing is shipped for it."""
    return next((name for name, members in MACHINES.items() if target in members), "")


def digest(source: str, options: Sequence[str], family: str) -> bytes:
    """Return the name of a code object in the archive."""
    return hashlib.sha256("\0".join((source, family, *options)).encode()).digest()[:16]


def renamed(code: bytes, target: str) -> bytes:
    """Return a family's code object for one of its members: another machine, another name in the metadata."""
    name = family(target)
    code = code.replace(f"amdgcn-amd-amdhsa--{name}".encode(), f"amdgcn-amd-amdhsa--{target}".encode())
    return code[:_FLAGS_AT] + bytes([MACHINES[name][target]]) + code[_FLAGS_AT + 1 :]


def archive_path() -> Path | None:
    """Return the archive: next to the kernels, where releases have it, or in the cache folder."""
    places = (Path(__file__).resolve().parents[1] / "kernels" / ARCHIVE, cached_file(ARCHIVE))
    return next((place for place in places if place is not None and place.is_file()), None)


class ShippedObjects:
    """The code objects for one target. Read from the archive at the first question."""

    def __init__(self, target: str) -> None:
        self._target, self._family = target, family(target)
        self._lock = threading.Lock()

    def code(self, source: str, options: Sequence[str]) -> bytes | None:
        """Return a kernel for the target; None if it is not shipped."""
        path = archive_path() if self._family else None
        if path is None:
            return None
        with self._lock:  # several threads compile
            found = _objects(path, self._family).get(digest(source, options, self._family))
        return None if found is None else renamed(found, self._target)


@cache
def _objects(path: Path, family: str) -> dict[bytes, bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            return dict(msgpack.unpackb(lzma.decompress(archive.read(family))))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, lzma.LZMAError) as error:
        log.warning("%s has no kernels for %s: %s; they are compiled", path, family, error)
        return {}

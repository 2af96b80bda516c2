# SPDX-License-Identifier: GPL-3.0-or-later
"""The rooms of the C++ core are layers, as import-linter's contracts make those of the Python packages."""

import re
from pathlib import Path

from tests.paths import REPOSITORY

CORE = REPOSITORY / "engine" / "core"

WIRE = {"header", "zmtp"}
"""Modules of protocol/core, which every core is linked with."""

MAY_INCLUDE = {
    "chess": {"chess"},
    "mate": {"chess", "mate"},
    "syzygy": {"chess", "syzygy"},
    "encoding": {"chess", "encoding"},
    "tree": {"chess", "encoding", "syzygy", "tree"},
    "exchange": {"exchange", "tree"} | WIRE,
}
"""Room by room, whose headers its files may include. The bindings, on top, may include all."""


def included(file: Path) -> set[str]:
    """The rooms of the core's own headers that a file includes; "" for those on top."""
    headers = re.findall(r'^#include "([^"]+)"$', file.read_text("utf-8"), re.MULTILINE)
    return {header.rpartition("/")[0] for header in headers}


def test_rooms_include_only_what_lies_below() -> None:
    seen: set[str] = set()
    for room, allowed in MAY_INCLUDE.items():
        for file in sorted((CORE / room).iterdir()):
            rooms = included(file)
            assert rooms <= allowed, f"{file.relative_to(REPOSITORY)} includes a header of {rooms - allowed}"
            seen |= rooms
    assert seen == set(MAY_INCLUDE) | WIRE  # So the pattern has found the includes.


def test_every_room_is_known() -> None:
    assert {path.name for path in CORE.iterdir() if path.is_dir()} == set(MAY_INCLUDE)


def test_every_room_has_a_namespace_of_its_own() -> None:
    """Two types of one name in one namespace would break C++'s One Definition Rule without a word."""
    cores = {
        "engine": {"": "engine"},
        "evaluator": {"": "evaluator|device", "device_loop": "device"},
        "protocol": {"": "protocol", "header": "wire", "zmtp": "wire"},
    }
    for package, special in cores.items():
        folder = REPOSITORY / package / "core"
        for file in sorted([*folder.rglob("*.cc"), *folder.rglob("*.h")]):
            room = file.relative_to(folder).parent.name
            opened = re.findall(r"^namespace (wavefront\S*) \{", file.read_text("utf-8"), re.MULTILINE)
            wanted = rf"wavefront::(?:{special.get(room, room)})"
            assert all(re.fullmatch(wanted, name) for name in opened), f"{file}: {opened}"

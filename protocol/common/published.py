# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of other publishers, which `wavefront get` fetches when the user asks, and the user's folder of
networks. A file NAME.pb.gz there is named everywhere without a path. published.toml is their table."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from protocol.common.folders import data_folder


@dataclass(frozen=True, slots=True)
class Published:
    """A network. bytes: of the file; about, if there is no digest. sha256: empty if it is not known."""

    name: str
    what: str
    url: str
    licence: str
    bytes: int
    sha256: str = ""

    def __str__(self) -> str:
        size = f"{'' if self.sha256 else 'about '}{self.bytes / 1e6:,.1f} MB"
        return f"{self.name}: {self.what}, {size}, {self.licence}, {self.url}"


@cache
def published() -> dict[str, Published]:
    """Return the networks by name."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {name: Published(name, **fields) for name, fields in table.items()}


def networks_folder() -> Path | None:
    """Return the user's folder of networks, which may not exist. None if the user has no data folder."""
    folder = data_folder()
    return folder and folder / "networks"


def network_of_user(name: str) -> Path | None:
    """Return the file of a network in the user's folder, by its name; None if it is not there."""
    folder = networks_folder()
    if folder is None or not re.fullmatch(r"[\w-]+", name):
        return None
    path = folder / f"{name.lower()}.pb.gz"
    return path if path.is_file() else None


def imitators() -> list[Path]:
    """Return the Maia networks in the user's folder, which imitate people."""
    folder = networks_folder()
    return sorted(folder.glob("maia-????.pb.gz")) if folder else []


def remedy(name: str) -> str:
    """Return what gets a missing network, such as `maia-1500` or `maia-1500.pb.gz`; empty if nothing does."""
    name = name.lower().removesuffix(".gz").removesuffix(".pb")
    return f"; `wavefront get {name}` fetches it; its name is then {name}" if name in published() else ""

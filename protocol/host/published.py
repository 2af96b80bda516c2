# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks of other publishers, which `wavefront get` fetches when the user asks, and the user's folder of
networks. A file NAME.pb.gz there is named everywhere without a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from protocol.host.folders import data_folder

_MAIA = "https://github.com/CSSLab/maia-chess/raw/master/maia_weights"
_LC0 = "https://storage.lczero.org/files"
_LC0_TERMS = "terms of lczero.org"


@dataclass(frozen=True, slots=True)
class Published:
    """A network. bytes: of the file; about, if there is no digest. sha256: empty if it is not known."""

    name: str
    what: str
    url: str
    licence: str
    bytes: int
    sha256: str = ""

    @property
    def size(self) -> str:
        return f"{'' if self.sha256 else 'about '}{self.bytes / 1e6:,.1f} MB"


def _maia(rating: int, size: int, sha256: str) -> Published:
    what = f"moves of people rated {rating} on Lichess"
    return Published(f"maia-{rating}", what, f"{_MAIA}/maia-{rating}.pb.gz", "GPL-3.0", size, sha256)


def _lc0(name: str, what: str, path: str, size: int, sha256: str = "") -> Published:
    return Published(name, what, f"{_LC0}/{path}", _LC0_TERMS, size, sha256)


# fmt: off
PUBLISHED = {each.name: each for each in (
    _maia(1100, 1_313_193, "e1cf1cd0c96b8a4fa6a275f4b9fd54ed1ffebf9fe44641b9fceded310e9619c4"),
    _maia(1200, 1_249_692, "ead4ba953f233ae732999ebc1e2b675378148527ebcfad2f0acbc5e4c224d98e"),
    _maia(1300, 1_244_431, "36195f87bf4761834baa0bf87472b18509a7261a9d7d6f1a8443261369a733f2"),
    _maia(1400, 1_328_977, "d5353ea6766356dad2d28920c6692f37a5f30963767f1a3105d33b4d0af011e8"),
    _maia(1500, 1_258_199, "35ab6f20421d59e1df3b17c5a5016947af4c6761368ef84044a9a9c7619a9a00"),
    _maia(1600, 1_313_870, "d2c9e5948581acf4b9fc0b1e720c5dc0fe64ce80cfc4a239d3f8a42e1176c876"),
    _maia(1700, 1_313_415, "d277eacd792d340a30abb464dc65127254e65cac57abca17facc469889b96478"),
    _maia(1800, 1_289_431, "0031ad7c4256b1fd09fbebd28418d644d68b26cd2a45df4967ccf5c7ec9c4965"),
    _maia(1900, 1_262_607, "e2f565f42d7cd9f122557e6dc4eb84e5bbaedceda1d404dc485d3611c7c97a12"),
    _lc0("t1-256x10", "small, for CPUs", "networks-contrib/t1-256x10-distilled-swa-2432500.pb.gz",
         37_118_673, "bc27a6cae8ad36f2b9a80a6ad9dabb0d6fda25b1e7f481a79bc359e14f563406"),
    _lc0("t1-512x15", "medium", "networks-contrib/t1-512x15x8h-distilled-swa-3395000.pb.gz", 145_000_000),
    _lc0("t82", "large, for GPUs", "768x15x24h-t82-swa-7464000.pb.gz", 165_000_000),
    _lc0("bt4", "largest, for fast GPUs",
         "networks-contrib/BT4-1024x15x32h-swa-6147500-policytune-332.pb.gz",
         382_645_315, "e6ada9d6c4a769bfab3aa0848d82caeb809aa45f83e6c605fc58a31d21bdd618"),
    _lc0("bt4-untuned", "bt4 before its policy was tuned",
         "networks-contrib/big-transformers/BT4-1024x15x32h-swa-6147500.pb.gz", 330_000_000),
)}
# fmt: on
"""By name. Addresses, sizes and digests were seen in several public repositories, 2026-11-29; those of
Maia are the files'."""


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
    return f"`wavefront get {name}` fetches it; its name is then {name}" if name in PUBLISHED else ""

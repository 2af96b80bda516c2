# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront get`: fetches networks of other publishers by name, when the user asks."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.common.printing import ReportedError, reason, say
from protocol.common.processes import INTERRUPTED

if TYPE_CHECKING:
    from protocol.common.published import Published

_log = partial(say, "wavefront get")

HELP = "fetch networks by name from their publishers: Maia, which imitates people, and lc0's"

TIMEOUT_S = 30.0
"""Longest wait for the publisher's next bytes."""

MOST_BYTES = 1 << 30
"""Maximum size of a network file."""


ARGUMENTS = {
    "name NAME*": "networks to fetch; --list shows their names",
    "--list": "show names, sizes, licences and addresses",
    "--yes": "fetch without asking first",
    "--offline": "fetch nothing: check what is there",
    "--mirror URL = ''": "fetch the files of the same names from this folder of a server (default: the "
    "publisher's address; https_proxy, http_proxy and no_proxy are honoured)",
}


def run(arguments: argparse.Namespace) -> int:
    """Return 1 if a network cannot be fetched. Raises SettingsError for unknown names."""
    from protocol.common.published import networks_folder, published
    from protocol.common.settings.spec import SettingsError, unknown

    if (folder := networks_folder()) is None:
        raise SettingsError("this user has no data folder: set XDG_DATA_HOME to a folder")
    files = {name: folder / f"{name}.pb.gz" for name in published()}
    if arguments.list or not arguments.name:
        for name, each in published().items():
            print(f"{each}{', here' if files[name].is_file() else ''}")
        print(f"`wavefront get NAME` fetches a network into {folder}; WeightsFile=NAME then uses it.")
        return 0
    names = list(dict.fromkeys(map(str.lower, arguments.name)))
    for name in names:
        if name not in published():
            raise SettingsError(f"{unknown('network', name, published())}; --list shows all")
    missing = [published()[name] for name in names if not _is_there(published()[name], files[name])]
    if arguments.offline:
        for each in missing:
            _log(f"{each.name} is not here. {_by_hand(each, files[each.name])}")
        return 1 if missing else 0
    if missing and not arguments.yes:
        print("\n".join(map(str, missing)))
        if not _confirmed():
            _log("nothing was fetched: answer y, or add --yes")
            return 1
    status = 0
    for each in missing:
        mirrored = f"{arguments.mirror.rstrip('/')}/{each.url.rpartition('/')[2]}"
        url = mirrored if arguments.mirror else each.url
        try:
            print(f"{each.name}: SHA-256 {_fetch(each, url, files[each.name])}, in {files[each.name]}")
        except KeyboardInterrupt:
            _log(f"{each.name}: interrupted; the same command resumes it")
            return INTERRUPTED
        except Exception as error:  # The other networks are fetched, whatever it is.
            _log(f"{each.name}: {url}: {_reason(error)}. {_by_hand(each, files[each.name])}")
            status = 1
    return status


def _is_there(network: Published, path: Path) -> bool:
    """Return True if a file is there, with the known or kept digest. Raises SettingsError for another one."""
    from protocol.common.settings.spec import SettingsError

    if not path.is_file():
        return False
    kept = _kept(path)
    known = network.sha256 or (kept.read_text("utf-8")[:64] if kept.is_file() else "")
    if known and _digest(path) != known:
        raise SettingsError(f"{path} is not the file that was fetched: move it away, then fetch it again")
    print(f"{network.name} is here: {path}")
    return True


def _confirmed() -> bool:
    try:
        return input("Fetch? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _fetch(network: Published, url: str, path: Path) -> str:
    """Fetch a file, resumed where an earlier attempt ended; return its SHA-256. Raises OSError,
    HTTPException and ReportedError."""
    from http.client import HTTPException

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from protocol.common.files import UNFINISHED, lock, replace_file, write_atomically

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + UNFINISHED)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with part.open("ab") as file, Progress(*columns, console=Console(stderr=True)) as progress:
        if not lock(file.fileno()):
            raise ReportedError("another process fetches it now")
        task = progress.add_task(network.name, total=network.bytes)
        before = -1
        while before < part.stat().st_size:  # Each attempt must bring more.
            before = part.stat().st_size
            try:
                _append(url, part, lambda done: progress.update(task, completed=done))
                break
            except (OSError, HTTPException):
                if part.stat().st_size <= before:
                    raise
    digest = _digest(part)
    try:
        if network.sha256 and digest != network.sha256:
            raise ReportedError(f"the SHA-256 is {digest}, not {network.sha256}; the file was discarded")
        if not network.sha256:
            _check_readable(part)
            write_atomically(_kept(path), f"{digest}  {path.name}\n".encode())
    except ReportedError:
        part.unlink()
        raise
    replace_file(part, path)
    return digest


def _append(url: str, part: Path, report: Callable[[int], None]) -> None:
    """Append the rest of a file; a server without ranges sends it whole. Raises OSError and HTTPException."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    have = part.stat().st_size
    headers = {"User-Agent": "wavefront"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT_S)
    except HTTPError as error:
        if error.code != 416:
            raise
        if error.headers.get("Content-Range") != f"bytes */{have}":  # What is there is of another file.
            part.write_bytes(b"")
            _append(url, part, report)
        return
    with response, part.open("r+b") as file:
        if url.startswith("https:") and not response.url.startswith("https:"):
            raise OSError(f"it leads to an address without encryption, {response.url}")
        ranged = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if response.status == 206 and ranged else 0
        total = have + int(response.headers.get("Content-Length") or -have)
        file.truncate(have)
        file.seek(have)
        while data := response.read(1 << 16):
            have += file.write(data)
            report(have)
            if have > MOST_BYTES:
                raise ReportedError(f"it has more than {MOST_BYTES:,} bytes")
    if have < total:
        raise OSError(f"the connection ended after {have:,} of {total:,} bytes")


def _check_readable(path: Path) -> None:
    """Raise ReportedError if the evaluator cannot read a network file."""
    from subprocess import DEVNULL, PIPE, run

    from protocol.common.processes import child_command

    command = child_command("evaluator", "describe", str(path))
    done = run(command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, text=True, errors="replace")
    if done.returncode:
        raise ReportedError(f"it is no network that can be read; it was discarded: {done.stderr.strip()}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kept(path: Path) -> Path:
    """The file with the digest of a network whose publisher's is not known, as `sha256sum -c` reads it."""
    return path.with_name(path.name + ".sha256")


def _by_hand(network: Published, path: Path) -> str:
    return f"By hand: save {network.url} as {path}"


def _reason(error: Exception) -> str:
    """Return why a file could not be fetched, with the proxies that may have been asked."""
    from urllib.error import URLError
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    inner = error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error
    proxies = {urlsplit(proxy).hostname or "" for name, proxy in getproxies().items() if name != "no"}
    return reason(inner) + (f" (proxy {', '.join(sorted(proxies))})" if proxies else "")

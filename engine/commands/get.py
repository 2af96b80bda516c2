# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront get`: fetches networks of other publishers by name, when the user asks."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.host.printing import ReportedError, printable
from protocol.host.processes import INTERRUPTED

if TYPE_CHECKING:
    from protocol.host.published import Published

HELP = "fetch networks by name from their publishers: Maia, which imitates people, and lc0's"

TIMEOUT_S = 30.0
"""Longest wait for the publisher's next bytes."""

MOST_BYTES = 1 << 30
"""Maximum size of a network file whose size is not known."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="*", metavar="NAME", help="networks to fetch; --list shows their names")
    parser.add_argument("--list", action="store_true", help="show names, sizes, licences and addresses")
    parser.add_argument("--yes", action="store_true", help="fetch without asking first")
    parser.add_argument("--offline", action="store_true", help="fetch nothing: check what is there")
    parser.add_argument(
        "--mirror",
        default="",
        metavar="URL",
        help="fetch the files of the same names from this folder of a server (default: the publisher's "
        "address; https_proxy, http_proxy and no_proxy are honoured)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Return 1 if a network cannot be fetched. Raises SettingsError for unknown names."""
    from protocol.host.published import PUBLISHED, networks_folder
    from protocol.settings.spec import SettingsError

    folder = networks_folder()
    if folder is None:
        raise SettingsError("this user has no data folder: set XDG_DATA_HOME to a folder")
    if arguments.list or not arguments.name:
        for each in PUBLISHED.values():
            there = "here" if _file(folder, each).is_file() else ""
            columns = f"{each.name:12} {each.size:>14}  {there:5} {each.what}; {each.licence}"
            print(f"{columns}\n{'':12} {each.url}")
        print(f"`wavefront get NAME` fetches a network into {folder}; WeightsFile=NAME then uses it.")
        return 0
    wanted = [_known(name) for name in dict.fromkeys(map(str.lower, arguments.name))]
    missing = [each for each in wanted if not _is_there(folder, each)]
    if missing and arguments.offline:
        return _fail("; ".join(f"{each.name} is not here. {_by_hand(folder, each)}" for each in missing))
    if missing and not arguments.yes and not _confirmed(missing, arguments.mirror):
        return _fail("nothing was fetched: answer y, or add --yes")
    status = 0
    for each in missing:
        url = _url(each, arguments.mirror)
        try:
            digest = _fetch(each, url, _file(folder, each))
        except KeyboardInterrupt:
            _fail(f"{each.name}: interrupted; the same command resumes it")
            return INTERRUPTED
        except Exception as error:  # The other networks are fetched, whatever it is.
            status = _fail(f"{each.name}: {_reason(error, url)}. {_by_hand(folder, each)}")
            continue
        known = "as known" if each.sha256 else "not known before, now kept; the file can be read"
        print(f"{each.name}: {_file(folder, each)}\nSHA-256 {digest} ({known})")
    return status


def _known(name: str) -> Published:
    """Return a network by name. Raises SettingsError, with the most similar name."""
    from difflib import get_close_matches

    from protocol.host.published import PUBLISHED
    from protocol.settings.spec import SettingsError

    if name in PUBLISHED:
        return PUBLISHED[name]
    near = get_close_matches(name, PUBLISHED, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise SettingsError(f"get: there is no network {name!a}: {hint}`wavefront get --list` shows the names")


def _is_there(folder: Path, network: Published) -> bool:
    """Return True if the file is there and has the known or kept digest. Raises SettingsError if not its
    own."""
    from protocol.settings.spec import SettingsError

    path = _file(folder, network)
    if not path.is_file():
        return False
    kept = _kept(path)
    known = network.sha256 or (kept.read_text("utf-8").split(" ")[0] if kept.is_file() else "")
    if known and _digest(path) != known:
        raise SettingsError(f"{path} is not the publisher's file: move it away, then fetch it again")
    print(f"{network.name} is here: {path}")
    return True


def _confirmed(networks: list[Published], mirror: str) -> bool:
    for each in networks:
        print(f"{each.name}: {each.size} from {_url(each, mirror)} ({each.licence})")
    try:
        return input("Fetch? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _fetch(network: Published, url: str, path: Path) -> str:
    """Fetch a file, resumed where an earlier attempt ended; return its SHA-256. Raises OSError,
    HTTPException and ReportedError."""
    from protocol.host.files import UNFINISHED, lock, replace_file, write_atomically

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + UNFINISHED)
    with part.open("ab") as file:
        if not lock(file.fileno()):
            raise ReportedError("another process fetches it now")
        _complete(network, url, part)
    digest = _digest(part)
    try:
        if network.sha256 and digest != network.sha256:
            raise ReportedError(f"{url} has SHA-256 {digest}, not {network.sha256}; it was discarded")
        if not network.sha256:
            _check_readable(part)
            write_atomically(_kept(path), f"{digest}  {path.name}\n".encode())
    except ReportedError:
        part.unlink()
        raise
    replace_file(part, path)
    return digest


def _complete(network: Published, url: str, part: Path) -> None:
    """Fetch what a file lacks, again while each attempt brings more. Raises OSError and HTTPException."""
    from http.client import HTTPException

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(network.name, total=network.bytes)
        while True:
            before = part.stat().st_size
            try:
                _append(url, part, lambda done, total: progress.update(task, completed=done, total=total))
                return
            except (OSError, HTTPException):
                if part.stat().st_size <= before:
                    raise


def _append(url: str, part: Path, report: Callable[[int, int | None], None]) -> None:
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
        error.close()  # What is there is the whole file, or none of this server's: its digest decides.
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return
        part.write_bytes(b"")
        _append(url, part, report)
        return
    with response, part.open("r+b") as file:
        if url.startswith("https:") and not response.url.startswith("https:"):
            raise OSError(f"it leads to an address without encryption, {response.url}")
        ranged = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        have = have if response.status == 206 and ranged else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        file.truncate(have)
        file.seek(have)
        while data := response.read(1 << 16):
            file.write(data)
            have += len(data)
            report(have, total)
            if have > MOST_BYTES:
                raise ReportedError(f"{url} has more than {MOST_BYTES:,} bytes")
    if total is not None and have < total:
        raise OSError(f"the connection ended after {have:,} of {total:,} bytes")


def _check_readable(path: Path) -> None:
    """Raise ReportedError if the evaluator cannot read a network file."""
    from subprocess import DEVNULL, PIPE, run

    from protocol.host.processes import child_command

    command = child_command("evaluator", "describe", str(path))
    done = run(command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, text=True, errors="replace")
    if done.returncode:
        raise ReportedError(f"it is no network that can be read; it was discarded: {done.stderr.strip()}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file(folder: Path, network: Published) -> Path:
    return folder / f"{network.name}.pb.gz"


def _kept(path: Path) -> Path:
    """The file with the digest of a network whose publisher's is not known, as `sha256sum -c` reads it."""
    return path.with_name(path.name + ".sha256")


def _url(network: Published, mirror: str) -> str:
    return f"{mirror.rstrip('/')}/{network.url.rpartition('/')[2]}" if mirror else network.url


def _by_hand(folder: Path, network: Published) -> str:
    return f"By hand: save {network.url} as {_file(folder, network)}"


def _reason(error: Exception, url: str) -> str:
    """Return why an address could not be fetched, with the proxy that was asked."""
    from urllib.error import HTTPError, URLError
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from protocol.host.printing import reason

    if isinstance(error, ReportedError):
        return str(error)
    inner = error.reason if isinstance(error, URLError) and not isinstance(error, HTTPError) else error
    text = reason(inner) if isinstance(inner, Exception) else str(inner)
    proxies = {urlsplit(proxy).hostname for name, proxy in getproxies().items() if name in ("http", "https")}
    through = f" (proxy {', '.join(sorted(filter(None, proxies)))})" if any(proxies) else ""
    return f"{url} cannot be fetched: {text}{through}"


def _fail(text: str) -> int:
    print(f"wavefront get: {printable(text)}", file=sys.stderr)
    return 1

# SPDX-License-Identifier: GPL-3.0-or-later
"""A recorder of what programs contact, for tests: strace, in a network namespace out of which nothing gets.

What counts is a call that names an address other than loopback, or that asks anybody, loopback included, to
look up a name. Where the system refuses the namespace, strace alone records.
"""

import ipaddress
import os
import re
import shutil
import subprocess
from pathlib import Path

_NAMESPACE = ("unshare", "--user", "--map-current-user", "--net")
_STRACE = ("strace", "-ff", "-qq", "-s", "0", "-e", "trace=%network", "-e", "signal=none", "-o")

_CALL = re.compile(r"(?:connect|sendto|sendmsg|sendmmsg|bind)\(")
_INET = re.compile(r'sa_family=AF_INET6?, sin6?_port=htons\((\d+)\), .*?(?:inet_addr\(|AF_INET6, )"([^"]+)"')
_RESOLVER = re.compile(r'sun_path="([^"]*(?:io\.systemd\.Resolve|/avahi-daemon/|/mdnsd)[^"]*)"')
_DNS_PORT = 53


class Recorder:
    """Runs one command. `command` goes before it; `contacts` tells afterwards whom it contacted."""

    def __init__(self, folder: Path, *, isolated: bool) -> None:
        """folder: for strace's files. isolated: in a network namespace."""
        self.isolated = isolated
        self._trace = folder / "trace"
        self.command = (*(_NAMESPACE if isolated else ()), *_STRACE, str(self._trace))

    def contacts(self) -> list[str]:
        """All contacts of the command and of every process that it has started, as `address port N` or the
        path of a resolver's socket. Call it when the command has ended.

        Raises FileNotFoundError when nothing was recorded.
        """
        files = sorted(self._trace.parent.glob(f"{self._trace.name}.*"))
        if not files:
            raise FileNotFoundError(f"strace has left nothing at {self._trace}")
        lines = (line for file in files for line in file.read_text("utf-8", "replace").splitlines())
        return [contact for line in lines for contact in contacts_of(line)]


def contacts_of(line: str) -> list[str]:
    """The contacts in one line of strace's."""
    if not _CALL.match(line):
        return []
    named = [(address, int(port)) for port, address in _INET.findall(line)]
    away = [(address, port) for address, port in named if port == _DNS_PORT or not _is_loopback(address)]
    return [f"{address} port {port}" for address, port in away] + _RESOLVER.findall(line)


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def make_recorder(folder: Path) -> Recorder | str:
    """A recorder whose files go to an existing folder, or the reason why this machine has none."""
    reason = "needs strace and util-linux: apt-get install strace"
    if shutil.which("strace") is None or shutil.which("unshare") is None:
        return reason
    for isolated in (True, False):
        attempt = folder / f"attempt-{isolated}"
        attempt.mkdir()
        command = [*Recorder(attempt, isolated=isolated).command, "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            return Recorder(folder, isolated=isolated)
        reason = f"strace does not work here: {done.stderr.strip()}"
    return reason


_KEPT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables without which programs may not run. All others are left out: libraries that report do so less
where variables name a CI system."""


def clean_environment(home: Path) -> tuple[str, ...]:
    """`env` with arguments, to go before a command: it has a home of its own, with a temporary folder `tmp`
    that must exist, GPUs are hidden, and nothing is set that keeps files elsewhere or libraries quiet."""
    return (
        *("env", "-i"),
        *(f"{name}={os.environ[name]}" for name in _KEPT if name in os.environ),
        *(f"HOME={home}", f"TMPDIR={home / 'tmp'}", "CUDA_VISIBLE_DEVICES=-1", "HIP_VISIBLE_DEVICES=-1"),
    )

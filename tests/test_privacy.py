# SPDX-License-Identifier: GPL-3.0-or-later
"""Nothing is told to anybody: what engine and evaluator contact, and what they leave in the user's home.

The libraries that they use could do either, and the wheel of onnxruntime does both unless it is kept from it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.engine.uci.uci_process import UciProcess
from tests.paths import REPOSITORY
from tests.recorder import Recorder, clean_environment, contacts_of, make_recorder

pytestmark = pytest.mark.integration

CACHE = Path(".cache", "wavefront")

IMPORT_ONNXRUNTIME = "from evaluator.backends.onnx.runtime import onnxruntime"


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    made = make_recorder(tmp_path)
    if isinstance(made, str):
        pytest.skip(made)
    return made


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home. Its path is short, for the sockets in its temporary folder."""
    with tempfile.TemporaryDirectory(prefix="wf") as folder:
        Path(folder, "tmp").mkdir()
        yield Path(folder)


def left_in(home: Path) -> list[str]:
    """All that is there, less the project's own cache and the folder for sockets."""
    paths = (path.relative_to(home) for path in home.rglob("*"))
    return sorted(
        str(path)
        for path in paths
        if path not in (Path("tmp"), CACHE.parent)
        and CACHE not in (path, *path.parents)
        and not (path.parent == Path("tmp") and path.name.startswith("wavefront-"))
    )


@pytest.mark.parametrize(
    "go",
    [
        pytest.param("go nodes 20", id="short"),
        # onnxruntime waits nine seconds before it sends what it has noted.
        pytest.param("go movetime 15000", id="long", marks=pytest.mark.slow),
    ],
)
def test_programs_contact_nobody_and_keep_to_their_cache(recorder: Recorder, home: Path, go: str) -> None:
    program = (sys.executable, str(REPOSITORY / "run_engine.py"))
    command = (*clean_environment(home), *recorder.command, *program)
    with UciProcess("Backend auto", command=command) as engine:
        engine.ask("uci", "uciok")
        engine.sync()
        assert engine.best_move(go) != "(none)"
    assert not any("error" in line or "lost" in line for line in engine.heard), engine.heard
    assert recorder.contacts() == []
    assert left_in(home) == []


def test_only_a_confirmed_get_contacts_anybody(recorder: Recorder, home: Path) -> None:
    """A missing network is named with its remedy, and `get` asks first: nothing is fetched by itself."""
    program = (*clean_environment(home), *recorder.command, sys.executable, str(REPOSITORY / "run_engine.py"))
    for words, said in (
        (("get", "--list"), b"maia-1500"),
        (("get", "maia-1500", "--offline"), b"By hand"),
        (("get", "maia-1500"), b"Fetch?"),
        (("evaluate", "--weights", "maia-1500"), b"wavefront get maia-1500"),
    ):
        done = subprocess.run([*program, *words], input=b"", capture_output=True, timeout=60)
        assert said in done.stdout + done.stderr
    assert recorder.contacts() == []
    if recorder.isolated:
        fetch = ("get", "maia-1500", "--yes", "--mirror", "http://192.0.2.1")
        subprocess.run([*program, *fetch], input=b"", capture_output=True, timeout=60)
        assert recorder.contacts() == ["192.0.2.1 port 80"]


def test_contacts_are_recorded(recorder: Recorder, home: Path) -> None:
    """Of child processes, too. Connecting a datagram socket sends nothing."""
    script = """
import contextlib, socket, sys
for address in sys.argv[1:]:
    host, port = address.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, contextlib.suppress(OSError):
        datagrams.connect((host, int(port)))
"""
    child = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)"
    addresses = ["192.0.2.1:443", "127.0.0.1:5577", "127.0.0.1:53"]
    command = [*clean_environment(home), *recorder.command]
    subprocess.run([*command, sys.executable, "-c", child, "-c", script, *addresses], check=True, timeout=60)
    assert recorder.contacts() == ["192.0.2.1 port 443", "127.0.0.1 port 53"]


@pytest.mark.parametrize(
    ("line", "contacts"),
    [
        (
            "connect(7, {sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), "
            'inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}, 28) = '
            "-1 ENETUNREACH (Network is unreachable)",
            ["2001:db8::1 port 443"],
        ),
        (
            "connect(7, {sa_family=AF_INET6, sin6_port=htons(5577), sin6_flowinfo=htonl(0), "
            'inet_pton(AF_INET6, "::ffff:127.0.0.1", &sin6_addr), sin6_scope_id=0}, 28) = 0',
            [],
        ),
        (
            'bind(7, {sa_family=AF_INET, sin_port=htons(5577), sin_addr=inet_addr("0.0.0.0")}, 16) = 0',
            ["0.0.0.0 port 5577"],
        ),
        (
            'connect(7, {sa_family=AF_UNIX, sun_path="/run/systemd/resolve/io.systemd.Resolve"}, 42) = 0',
            ["/run/systemd/resolve/io.systemd.Resolve"],
        ),
        ('connect(7, {sa_family=AF_UNIX, sun_path="/tmp/wavefront-0/evaluator"}, 110) = 0', []),
        ('sendto(3, {"", 20}, 20, 0, {sa_family=AF_NETLINK, nl_pid=0, nl_groups=00000000}, 12) = 20', []),
    ],
)
def test_contacts_are_recognised(line: str, contacts: list[str]) -> None:
    assert contacts_of(line) == contacts


def test_only_the_user_s_own_setting_lets_onnxruntime_report(recorder: Recorder, home: Path) -> None:
    """And it then leaves what the other tests look for."""
    spec = find_spec("onnxruntime")
    assert spec is not None and spec.origin is not None
    libraries = Path(spec.origin).parent.joinpath("capi").glob("*.so")
    if not any(b"ORT_DISABLE_TELEMETRY" in library.read_bytes() for library in libraries):
        pytest.skip("this onnxruntime has no telemetry client")
    if not recorder.isolated:
        pytest.skip("without a network namespace it would really report")
    clean = clean_environment(home)
    program = (*recorder.command, sys.executable, "-c", IMPORT_ONNXRUNTIME)
    subprocess.run([*clean, *program], cwd=REPOSITORY, check=True, timeout=60)
    assert left_in(home) == []
    subprocess.run([*clean, "ORT_DISABLE_TELEMETRY=0", *program], cwd=REPOSITORY, check=True, timeout=60)
    assert ".cache/Microsoft" in left_in(home)

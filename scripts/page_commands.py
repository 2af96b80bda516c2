# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in the shell blocks of the pages: reads them, and runs those that a machine without a GPU can run.

python scripts/page_commands.py PAGE.md …

scripts/page_commands.toml lists the others with reasons. Prints each command that fails or whose output lacks
the form that this file gives.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = tomllib.loads((ROOT / "scripts/page_commands.toml").read_text("utf-8"))
PROGRAMS = {
    "wavefront": [str(ROOT / "run_engine.py")],
    "wavefront-evaluator": ["-m", "evaluator"],
    "wavefront-training": ["-m", "training"],
}
"""What Python runs for each program."""

GAME = '[White "Your Name"]\n[Black "b"]\n[Result "1-0"]\n\n1. e4 e5 2. Bc4 Nc6 3. Qh5 Nf6 4. Qxf7# 1-0\n'
SECONDS = 120.0


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of our programs in the shell blocks of a page."""
    for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        if language not in ("", "sh", "bat"):
            continue
        rest = ""
        for line in block.replace("\\\n", " ").splitlines():
            if not rest and ("…" in line or not re.search(r"\bwavefront", line)):
                continue
            try:
                words = _words(rest + re.sub(r"(^|\s)#.*", "", line))
            except ValueError:  # a quotation goes on
                rest += f"{line}\n"
                continue
            rest = ""
            for command in _split(words):
                program = re.sub(r"^.*[/\\]", "", command[0]).removesuffix(".exe")
                if program in PROGRAMS:
                    yield [program, *command[1:]]


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)


def _split(words: list[str]) -> Iterator[list[str]]:
    """Yield the commands of a line, without redirections."""
    command: list[str] = []
    skip = False
    for word in [*words, ";"]:
        if set(word) <= set("|&;()"):
            if command:
                yield command
            command = []
        elif set(word) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        elif command or "=" not in word:  # not an assignment before the command
            command.append(word)


def elsewhere(command: list[str]) -> str | None:
    """Return why a command is not run here."""
    line = " ".join(command)
    return next((reason for pattern, reason in TABLES["elsewhere"].items() if re.search(pattern, line)), None)


def runnable(text: str) -> list[list[str]]:
    """Return the commands of a page that are run here, with a service before those that need one."""
    found = [command for command in commands(text) if elsewhere(command) is None]
    clients = [each for each in found if each[1:2] == ["status"] or "--evaluator" in each]
    if clients and ["wavefront-evaluator", "serve"] not in [each[:2] for each in found]:
        found.insert(0, ["wavefront-evaluator", "serve"])
    return found


def failures(text: str) -> Iterator[str]:
    """Run the commands of a page in order, in a temporary folder. Yield those that fail or lack the form."""
    ports = {"5577": _free_port(), "8766": _free_port(), "9577": _free_port()}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        environment = _prepare(folder)
        for command in runnable(text):
            key = " ".join(command[:2]) if command[1:] and command[1][0] not in "-" else command[0]
            added = TABLES["added"].get(key, "")
            for given, needless in (
                ("--address", "--address"),
                ("--listen", "--listen"),
                ("--evaluator", "--backend"),
            ):
                if given in command:
                    added = re.sub(rf"{needless} \S+", "", added)
            words = "\0".join([*PROGRAMS[command[0]], *command[1:], *added.split()])
            words = re.sub("5577|8766|9577", lambda match: ports[match[0]], words)
            arguments = [sys.executable, *words.split("\0")]
            if key in ("wavefront-evaluator serve", "wavefront web"):
                server = stack.enter_context(
                    subprocess.Popen(arguments, cwd=folder, env=environment, text=True, stdout=-1, stderr=-2)
                )
                stack.callback(server.terminate)
                assert server.stdout is not None
                if not any(re.search(r" ready$|The page is at", said) for said in server.stdout):
                    yield f"{shlex.join(command)}: ended with {server.wait()}"
                continue
            given = TABLES["input"].get(key, "")
            done = subprocess.run(
                arguments,
                cwd=folder,
                env=environment,
                input=given,
                text=True,
                capture_output=True,
                timeout=SECONDS,
            )
            if done.returncode or not re.search(TABLES["form"].get(key, ""), done.stdout + done.stderr):
                said = done.stdout[-500:] + done.stderr[-1000:]
                yield f"{shlex.join(command)}: status {done.returncode}\n{said}"


def _prepare(folder: Path) -> dict[str, str]:
    """Make the files that the pages name, and return an environment whose user folders are in this one."""
    for name in ("game.pgn", "games.pgn"):
        (folder / name).write_text(GAME, "utf-8")
    (folder / "positions.txt").write_text("startpos\n4k3/8/8/8/8/8/4P3/4K3 w - - 0 1\n", "utf-8")
    for name in ("network", "a", "b"):
        (folder / f"{name}.pb.gz").symlink_to(ROOT / "evaluator/networks/wavefront-cpu.pb.gz")
    (folder / "configs").symlink_to(ROOT / "configs")
    user = {
        f"XDG_{name}": str(folder / name)
        for name in ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "RUNTIME_DIR")
    }
    (folder / "RUNTIME_DIR").mkdir(mode=0o700)
    return {**os.environ, **user, "PYTHONPATH": str(ROOT)}


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


if __name__ == "__main__":
    faults = [fault for page in sys.argv[1:] for fault in failures(Path(page).read_text("utf-8"))]
    print("\n".join(faults) or "all commands run")
    sys.exit(bool(faults))

# SPDX-License-Identifier: GPL-3.0-or-later
"""A UCI engine as a process, for tests: sends lines, waits for answers, and checks every line against UCI's
grammar."""

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import chess

from protocol.connections.addresses import runtime_directory
from tests.paths import REPOSITORY

TIMEOUT = 60.0

_MOVE = r"(?:[a-h][1-8]){2}[nbrq]?"
_SCORE = r"score (?:cp -?\d+|mate -?\d+)"
GRAMMAR = re.compile(
    "|".join(
        (
            r"id (?:name|author) \S.*",
            r"option name \S.* type (?:check default (?:true|false)|spin default -?\d+ min -?\d+ max -?\d+"
            r"|combo default \S+(?: var \S+)+|string default \S.*|button)",
            r"uciok",
            r"readyok",
            rf"bestmove (?:\(none\)|{_MOVE}(?: ponder {_MOVE})?)",
            r"info string \S.*",
            r"info depth 0 score (?:mate 0|cp 0)",
            rf"info depth \d+ seldepth \d+ time \d+ nodes \d+ {_SCORE}(?: wdl \d+ \d+ \d+)?"
            r"(?: movesleft \d+)? hashfull \d+ nps \d+(?: eps \d+)? tbhits \d+"
            rf" multipv \d+ pv {_MOVE}(?: {_MOVE})*",
        )
    )
)


COMPUTED_BY = "info string network "
"""How the line begins that says what computes the network."""

AFTER_E4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"


def word_after(line: str, name: str) -> str:
    words = line.split()
    return words[words.index(name) + 1]


def legal_moves(fen: str = chess.STARTING_FEN) -> set[str]:
    return {move.uci() for move in chess.Board(fen).legal_moves}


class UciProcess:
    """`run_engine.py` (or another command) with its standard streams; use it as a context manager."""

    def __init__(
        self, *options: str, command: tuple[str, ...] = (), environment: dict[str, str] | None = None
    ) -> None:
        """options: `Name value …` texts for setoption. The random backend is used unless they name one."""
        self.process = subprocess.Popen(
            command or (sys.executable, str(REPOSITORY / "run_engine.py")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        self.pid = self.process.pid
        self.heard: list[str] = []
        self.changed: set[str] = set()
        """Names of options that were set."""
        self.errors = b""
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if not any(option.split()[0] in ("Backend", "Evaluator", "WeightsFile") for option in options):
            options = ("Backend random", *options)
        for option in options:
            name, _, value = option.partition(" ")
            self.send(f"setoption name {name} value {value}")

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.decode("utf-8").rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def send(self, line: str) -> None:
        if match := re.match(r"setoption name (.+?) value", line):
            self.changed.add(match[1])
        self.send_bytes(line.encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def until(self, beginning: str) -> list[str]:
        """All lines up to and with the first that begins so."""
        lines: list[str] = []
        while True:
            line = self._lines.get(timeout=TIMEOUT)
            assert line is not None, f"the engine ended before {beginning!r}; said {lines}, {self.errors!r}"
            assert GRAMMAR.fullmatch(line), f"not UCI: {line!r}"
            self.heard.append(line)
            lines.append(line)
            if line.startswith(beginning):
                return lines

    def ask(self, line: str, beginning: str) -> list[str]:
        self.send(line)
        return self.until(beginning)

    def sync(self) -> list[str]:
        """Everything said until all commands so far are obeyed, but for what computes the network."""
        return [line for line in self.ask("isready", "readyok")[:-1] if not line.startswith(COMPUTED_BY)]

    def new_game(self) -> None:
        """Send `ucinewgame` and read all that the last search says.

        `readyok` may precede its best move. `ucinewgame` waits for that, and `help` for `ucinewgame`.
        """
        self.send("ucinewgame")
        self.ask("help", "info string quit")

    def best_move(self, go: str) -> str:
        return self.ask(go, "bestmove")[-1].split()[1]

    def end_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> tuple[int, list[str]]:
        """Wait for the process to end; its exit status and what it still said."""
        status = self.process.wait(TIMEOUT)
        for thread in self._threads:
            thread.join(TIMEOUT)
        rest = []
        while (line := self._lines.get(timeout=TIMEOUT)) is not None:
            assert GRAMMAR.fullmatch(line), f"not UCI: {line!r}"
            rest.append(line)
        return status, rest

    def quit(self) -> None:
        self.send("quit")
        status, _rest = self.wait()
        assert status == 0, self.errors
        assert b"Traceback" not in self.errors, self.errors.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self.process.poll() is None:
                self.quit()
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                if stream is not None and not stream.closed:
                    stream.close()


_kept: dict[UciProcess, dict[str, str]] = {}
"""The process of `shared_engine` with the defaults of its options; empty before the first use."""


@contextmanager
def shared_engine(*options: str) -> Iterator[UciProcess]:
    """A process with the random backend that tests of a module share, with options changed for this one. It
    must not be ended. It has no tree at the beginning."""
    if not _kept:
        made = UciProcess()
        lines = made.ask("uci", "uciok")
        pattern = r"option name (.+) type (?!button)\w+ default (.+?)(?: min .+| var .+)?"
        found = [match for line in lines if (match := re.fullmatch(pattern, line))]
        _kept[made] = {match[1]: match[2] for match in found} | {"Backend": "random"}
    (engine,) = _kept
    engine.heard.clear()
    try:
        for option in options:
            name, _, value = option.partition(" ")
            engine.send(f"setoption name {name} value {value}")
        yield engine
        engine.send("stop")
        for name in engine.changed & _kept[engine].keys():
            engine.send(f"setoption name {name} value {_kept[engine][name]}")
        engine.changed.clear()
        for line in ("debug off", "setoption name ClearTree", "position startpos"):
            engine.send(line)
        engine.new_game()
    except BaseException:
        end_shared()
        raise


def end_shared() -> None:
    """End the process of `shared_engine`, if there is one."""
    while _kept:
        engine, _ = _kept.popitem()
        engine.__exit__(None, None, None)


def eventually(condition: Callable[[], object]) -> None:
    """Wait until something is so that nobody tells of."""
    deadline = time.perf_counter() + TIMEOUT
    while not condition():
        assert time.perf_counter() < deadline
        time.sleep(0.01)


def sockets_of(evaluator: int) -> list[Path]:
    """The folders for sockets that an embedded evaluator of this process id has left or still uses."""
    return list(runtime_directory().glob(f"embedded-{evaluator}-*"))

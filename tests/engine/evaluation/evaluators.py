# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluators that run by themselves, each a process at an address where it can be started again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

import psutil

from engine.evaluation.link.process import EvaluatorProcess, EvaluatorSettings, evaluator_command
from engine.options import Options
from protocol import EvaluatorClient

_shared: list[tuple[EvaluatorProcess, str]] = []
"""The process of `shared_evaluator` with its address; empty before the first use."""


@contextmanager
def shared_evaluator() -> Iterator[str]:
    """Let engines to which no evaluator is given use one with the backend `random`, which tests of a module
    share; its address."""
    if not _shared:
        process = EvaluatorProcess(evaluator_command(EvaluatorSettings.of(Options(backend="random"))))
        _shared.append((process, process.await_ready()))
    with patch.dict(os.environ, {"WAVEFRONT_EVALUATOR": _shared[0][1]}):
        yield _shared[0][1]


def end_shared() -> None:
    """End the process of `shared_evaluator`, if there is one."""
    while _shared:
        _shared.pop()[0].close()


class RunningEvaluator:
    """An evaluator process at an ipc address in a folder. Use it as a context manager."""

    def __init__(self, folder: Path, name: str, *flags: str) -> None:
        """flags: of `serve`; the backend is `random` unless they name one."""
        self.address = f"ipc://{folder / name}"
        self._flags = flags if "--backend" in flags else ("--backend", "random", *flags)
        self._process: EvaluatorProcess | None = None
        self._drained = False

    def ensure(self) -> Self:
        """Start it unless it runs and accepts requests."""
        if self._drained or self._process is None or self._process.pid is None:
            self.close()
            self.start()
        return self

    def start(self) -> None:
        """Start it, at the first time or again; returns when it is ready."""
        settings = EvaluatorSettings.of(Options(backend=""))
        command = [*evaluator_command(settings), "--address", self.address, *self._flags]
        self._process, self._drained = EvaluatorProcess(command), False
        assert self._process.await_ready() == self.address

    @property
    def pid(self) -> int:
        assert self._process is not None and self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """End it as SIGKILL does."""
        assert self._process is not None
        psutil.Process(self.pid).kill()
        self.close()

    def drain(self) -> None:
        """Have it refuse what comes, finish, and end."""
        with EvaluatorClient(self.address, handshake=False) as client:
            client.drain()
        self._drained = True

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

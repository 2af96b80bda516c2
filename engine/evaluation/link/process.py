# SPDX-License-Identifier: GPL-3.0-or-later
"""The process of an embedded evaluator: command line, start and end.

The engine starts the evaluator as a program and never imports it. The program ends when its standard input
closes, which happens even if the engine is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.evaluation.errors import (
    EvaluatorCrashedError,
    EvaluatorKilledError,
    EvaluatorRefusalError,
    NoEvaluatorError,
)
from engine.options import Options
from engine.options.lc0_names import AUTODISCOVER
from protocol.common.printing import reason
from protocol.common.processes import CRASHES_VARIABLE, child_command, crash_signal, group_of_its_own
from protocol.connections.address_list import parse_addresses

if TYPE_CHECKING:
    from protocol.wire.messages import NetworkInfo

NetworkKey = tuple[str, str, str]
"""Weights, policy head and value head, as given in the options."""


@dataclass(frozen=True, slots=True)
class EvaluatorSettings:
    """The options that determine the evaluator. A change needs another one.

    address: one, or several separated by commas; empty for an embedded evaluator.
    """

    address: str
    weights: str
    backend: str
    threads: int
    policy_head: str
    value_head: str
    keys: str = ""
    compression: str = "auto"

    @classmethod
    def of(cls, options: Options) -> EvaluatorSettings:
        return cls(
            address=options.evaluator or os.environ.get("WAVEFRONT_EVALUATOR", ""),
            weights="" if options.weights == AUTODISCOVER else options.weights,
            backend=options.backend,
            threads=options.threads,
            policy_head=options.policy_head,
            value_head=options.value_head,
            keys=options.evaluator_keys,
            compression=options.evaluator_compression,
        )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in order of preference. Raises SettingsError for an error in the environment."""
        return parse_addresses(self.address)

    @property
    def compress(self) -> bool | None:
        """True if batches are compressed; None: only to other machines."""
        return {"on": True, "off": False}.get(self.compression)

    def with_choices(self, network: NetworkInfo, threads: int) -> EvaluatorSettings:
        """Return the settings with the evaluator's choices filled in where they are open."""
        return replace(
            self,
            threads=self.threads or threads,
            weights=self.weights or network.name,
            policy_head=self.policy_head or network.policy_head,
            value_head=self.value_head or network.value_head,
        )

    @property
    def network(self) -> NetworkKey:
        """Key of the requested network."""
        return self.weights, self.policy_head, self.value_head


def crash_folder() -> str | None:
    """Create and return a temporary folder for the evaluator's crash records.

    None if the evaluator can write to its cache folder, or no folder can be created.
    """
    import tempfile

    from protocol.common.folders import cache_folder

    path = cache_folder()
    with contextlib.suppress(OSError):
        while path is not None and not path.exists():
            path = path.parent
        if path is not None and os.access(path, os.W_OK | os.X_OK):
            return None
    with contextlib.suppress(OSError):
        return tempfile.mkdtemp(prefix="wavefront-crashes-")
    return None


def evaluator_command(settings: EvaluatorSettings) -> list[str]:
    """Return the command line of an embedded evaluator."""
    command = child_command("evaluator", "serve", "--embedded", "--log-level", "warning")
    for flag, value in (
        ("--network", settings.weights),
        ("--backend", settings.backend),
        ("--threads", str(settings.threads or "")),
        ("--policy-head", settings.policy_head),
        ("--value-head", settings.value_head),
    ):
        if value:
            command.append(f"{flag}={value}")  # A value may begin with a hyphen.
    return command


class EvaluatorProcess:
    """An embedded evaluator. The constructor starts the process; `close` stops it.

    Raises EvaluatorRefusalError if the process cannot be started.
    """

    def __init__(self, command: list[str], crashes: str | None = None) -> None:
        """crashes: folder for crash records (default: the evaluator's cache folder)."""
        environment = dict(os.environ)
        if crashes is not None:
            environment[CRASHES_VARIABLE] = crashes
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=environment,
                **group_of_its_own(),
            )
        except OSError as error:
            raise EvaluatorRefusalError(f"cannot start the evaluator: {reason(error)}") from None
        self._bound = False
        self.threads = 0
        """Threads of its CPU backend; 0 until it is ready."""

    @property
    def pid(self) -> int | None:
        """Process id; None once the process has ended."""
        return self._process.pid if self._process.poll() is None else None

    def await_ready(
        self,
        log: Callable[[str], None] = lambda text: None,
        on_end: Callable[[int], None] = lambda status: None,
    ) -> str:
        """Wait until the evaluator serves its network, and return its address.

        It prints JSON lines: its bound address, its progress, and that it is ready. log: receives progress,
        later from another thread. on_end: called from another thread with the exit status when the process
        ends after that. Raises EvaluatorRefusalError with the evaluator's reason, EvaluatorKilledError,
        EvaluatorCrashedError, or NoEvaluatorError if it ended without a reason.
        """
        assert self._process.stdout is not None
        address = ""
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict):
                continue
            event = message.get("event")
            if event == "error":
                raise EvaluatorRefusalError(f"evaluator: {message.get('message', 'it gave no reason')}")
            if event == "progress":
                log(f"evaluator: {message.get('message', '')}")
            if event == "bound":
                address = str(message.get("address", ""))
                self._bound = True
            if event == "ready" and address:
                self.threads = int(message.get("threads", 0))
                threading.Thread(
                    target=self._watch, args=(log, on_end), name="evaluator-output", daemon=True
                ).start()
                return address
        code = self._process.wait()
        if hasattr(signal, "SIGKILL") and code == -signal.SIGKILL:
            raise EvaluatorKilledError(
                "the evaluator was killed before it was ready; is there memory for it?"
            )
        if (name := crash_signal(code)) is not None:
            raise EvaluatorCrashedError(f"the evaluator crashed ({name}) before it was ready")
        raise NoEvaluatorError(
            f"the evaluator ended with exit code {code} before it was ready; "
            "try `wavefront-evaluator serve` to see why"
        )

    def kill(self) -> None:
        """Kill a hung process. The caller must still call `close`."""
        self._process.kill()

    def close(self) -> int:
        """Close the evaluator's standard input, wait for its exit, and return the exit status.

        A process that does not listen yet has nothing to clean up and is terminated at once. Others are
        terminated after 2 s and killed after another 2 s.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if not self._bound:
            self._process.terminate()
        for give_up in (self._process.terminate, self._process.kill):
            try:
                return self._process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                give_up()
        return self._process.wait()

    def _watch(self, log: Callable[[str], None], on_end: Callable[[int], None]) -> None:
        """Read the process's output until it ends, because a full pipe would block it."""
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError), self._process.stdout:
            for line in self._process.stdout:
                with contextlib.suppress(ValueError):
                    message = json.loads(line)
                    if isinstance(message, dict) and message.get("event") == "progress":
                        log(f"evaluator: {message.get('message', '')}")
        on_end(self._process.wait())

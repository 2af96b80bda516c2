"""Finds or starts the evaluator, and gets it back when it is lost.

The engine never imports the evaluator: it starts it as a program that ends with the engine (when its standard
input closes, which the operating system sees to even if the engine is killed), or connects to one that runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.options import Options
from protocol.host.processes import group_of_its_own

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient

FALLBACK_SECONDS = 3.0
"""How long a given evaluator may be out of reach before one is started in its place, if that is allowed."""

RECONNECT_SECONDS = 10.0
"""How long a given evaluator that was connected may be out of reach before it is given up."""

RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Waits before each new attempt; the last one repeats."""

MAX_FAILED_STARTS = 3
"""Starts in a row that may fail without a reason given before the engine stops trying."""


class NoEvaluatorError(RuntimeError):
    """No evaluator can be had. The message says why and what to do."""


class _RefusedError(NoEvaluatorError):
    """The evaluator gave a reason that trying again will not change, such as a damaged network file."""


@dataclass(frozen=True, slots=True)
class EvaluatorSettings:
    """The options that decide which evaluator is used: when they change, another is needed."""

    address: str
    weights: str
    backend: str
    threads: int
    policy_head: str
    value_head: str

    @classmethod
    def of(cls, options: Options) -> EvaluatorSettings:
        return cls(
            address=options.evaluator or os.environ.get("WAVEFRONT_EVALUATOR", ""),
            weights=options.weights,
            backend=options.backend,
            threads=options.threads,
            policy_head=options.policy_head,
            value_head=options.value_head,
        )


def evaluator_command(settings: EvaluatorSettings) -> list[str]:
    """The command line of an embedded evaluator."""
    # -P: a folder called `evaluator` where the engine happens to be started must not be run.
    command = [sys.executable, "-P", "-m", "evaluator", "serve", "--embedded", "--log-level", "warning"]
    for flag, value in (
        ("--network", settings.weights),
        ("--backend", settings.backend),
        ("--threads", str(settings.threads or "")),
        ("--policy-head", settings.policy_head),
        ("--value-head", settings.value_head),
    ):
        if value:
            command += [flag, value]
    return command


def evaluator_environment() -> dict[str, str]:
    """The environment of an embedded evaluator: it must find the package that lies beside this one."""
    environment = dict(os.environ)
    root = str(Path(__file__).resolve().parents[2])
    # Installed packages are found anyway, and must not come before the standard library.
    if not root.endswith(("site-packages", "dist-packages")):
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = root + (os.pathsep + before if before else "")
    return environment


class EvaluatorLink:
    """A connection to the evaluator that is made, and made again when lost, in the background.

    `start` returns at once; `wait` and `client` give the connection when there is one. The client belongs to
    the thread that uses it; one thread at a time may. `log` is called from several threads.
    """

    def __init__(
        self, settings: EvaluatorSettings, log: Callable[[str], None], *, fallback: bool = False
    ) -> None:
        self.settings = settings
        self._log = log
        self._fallback = fallback
        self._condition = threading.Condition()
        self._client: EvaluatorClient | None = None
        self._error: NoEvaluatorError | None = None
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._was_connected = False
        self._closed = False

    @property
    def client(self) -> EvaluatorClient | None:
        """The connection, None while there is none."""
        with self._condition:
            return self._client

    @property
    def error(self) -> NoEvaluatorError | None:
        """Why the last attempt to connect was the last one; None while attempts go on or succeeded."""
        with self._condition:
            return self._error

    @property
    def pid(self) -> int | None:
        """Process id of the embedded evaluator, None if none runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        """Begin to connect unless that is done or under way. An earlier failure is tried anew."""
        with self._condition:
            if self._closed or self._client is not None or self._thread is not None:
                return
            self._error = None
            self._thread = threading.Thread(target=self._connect, name="evaluator-link", daemon=True)
            self._thread.start()

    def wait(self, timeout: float | None = None) -> EvaluatorClient | None:
        """The connection, waiting up to `timeout` seconds for it; None when the time is over.

        Raises NoEvaluatorError when there is no hope of one.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._client or self._error or self._closed, timeout)
            if self._error is not None:
                raise self._error
            return self._client

    def lost(self, client: EvaluatorClient, reason: str) -> None:
        """Tell that `client` has failed: it is closed and a new connection is made in the background."""
        with self._condition:
            if client is not self._client:
                return
            self._client = None
        self._log(f"evaluator lost: {reason}; reconnecting")
        client.close()
        self.start()

    def close(self) -> None:
        """Disconnect and end the embedded evaluator. Idempotent; waits until its process is gone."""
        with self._condition:
            self._closed = True
            client, self._client = self._client, None
            thread = self._thread
            self._condition.notify_all()
        if client is not None:
            client.close()
        self._end_process()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    # -- in the background -------------------------------------------------------------------------------

    def _connect(self) -> None:
        error: NoEvaluatorError | None = None
        client: EvaluatorClient | None = None
        began = time.monotonic()
        reported = ""
        failed_starts = attempt = 0
        embedded = not self.settings.address
        while not self._closed:
            try:
                client = self._start_embedded() if embedded else self._connect_to(self.settings.address)
                break
            except _RefusedError as refusal:
                error = refusal
                break
            except NoEvaluatorError as failure:
                if str(failure) != reported and not self._closed:
                    reported = str(failure)
                    self._log(reported)
                failed_starts += embedded
                waited = time.monotonic() - began
                patience = FALLBACK_SECONDS if self._fallback else RECONNECT_SECONDS * self._was_connected
                if failed_starts >= MAX_FAILED_STARTS or (
                    not embedded and not self._fallback and waited >= patience
                ):
                    error = failure
                    break
                if not embedded and waited >= patience:
                    self._log("starting an evaluator of its own instead")
                    embedded = True
                    continue
            with self._condition:
                self._condition.wait_for(
                    lambda: self._closed, RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
                )
            attempt += 1
        with self._condition:
            self._thread = None
            if self._closed:
                if client is not None:
                    client.close()
            else:
                self._client, self._error = client, error
                self._was_connected = self._was_connected or client is not None
            self._condition.notify_all()

    def _connect_to(self, address: str) -> EvaluatorClient:
        """Connect to an evaluator that runs, and have it load the network if one is asked for."""
        from protocol.client import EvaluatorClient
        from protocol.errors import EvaluatorError, RemoteError

        try:
            client = EvaluatorClient(address, timeout=30.0, name=f"engine {os.getpid()}")
        except RemoteError as error:
            raise _RefusedError(f"the evaluator at {address} refuses: {error}") from None
        except EvaluatorError as error:
            raise NoEvaluatorError(str(error)) from None
        try:
            self._choose_network(client)
        except EvaluatorError as error:
            client.close()
            raise _RefusedError(f"the evaluator at {address} cannot serve the network: {error}") from None
        return client

    def _choose_network(self, client: EvaluatorClient) -> None:
        settings = self.settings
        if not settings.weights:
            return
        if any(settings.weights in (network.name, network.content_hash) for network in client.networks):
            client.use(settings.weights)
            return
        path = str(Path(settings.weights).expanduser().resolve())
        loaded = client.load(
            path, policy_head=settings.policy_head, value_head=settings.value_head, timeout=600.0
        )
        client.use(loaded.name)

    def _start_embedded(self) -> EvaluatorClient:
        self._end_process()
        try:
            process = subprocess.Popen(
                evaluator_command(self.settings),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=evaluator_environment(),
                **group_of_its_own(),
            )
        except OSError as error:
            raise _RefusedError(f"cannot start the evaluator: {error}") from None
        with self._condition:
            self._process = process
            closed = self._closed
        if closed:
            self._end_process()
            raise NoEvaluatorError("the engine is closing")
        # The import takes as long as the evaluator's own start: do both at once.
        from protocol.client import EvaluatorClient
        from protocol.errors import EvaluatorError

        address = self._await_ready(process, self._log)
        try:
            return EvaluatorClient(address, timeout=30.0, name=f"engine {os.getpid()}")
        except EvaluatorError as error:
            raise NoEvaluatorError(f"the evaluator that was started does not answer: {error}") from None

    @staticmethod
    def _await_ready(process: subprocess.Popen[str], log: Callable[[str], None] = lambda text: None) -> str:
        """Read the lines in which an embedded evaluator tells its address, what it is doing (which is
        logged) and that it is ready."""
        assert process.stdout is not None
        address = ""
        for line in process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict):
                continue
            event = message.get("event")
            if event == "error":
                raise _RefusedError(f"evaluator: {message.get('message', 'it gave no reason')}")
            if event == "progress":
                log(f"evaluator: {message.get('message', '')}")
            if event == "bound":
                address = str(message.get("address", ""))
            if event == "ready" and address:
                # Whatever else it prints must not fill the pipe.
                threading.Thread(target=_drain, args=(process,), name="evaluator-output", daemon=True).start()
                return address
        code = process.wait()
        raise NoEvaluatorError(
            f"the evaluator ended with exit code {code} before it was ready; "
            f"try `{Path(sys.executable).name} -m evaluator serve` to see why"
        )

    def _end_process(self) -> None:
        with self._condition:
            process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        for give_up in (process.terminate, process.kill):
            try:
                process.wait(timeout=2)
                return
            except subprocess.TimeoutExpired:
                give_up()
        process.wait()


def _drain(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    with contextlib.suppress(OSError, ValueError), process.stdout:
        for _line in process.stdout:
            pass

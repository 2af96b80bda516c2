# SPDX-License-Identifier: GPL-3.0-or-later
"""Disturbances of the soak test, one thread each: attacks, killed engines, network changes, page requests."""

from __future__ import annotations

import gzip
import http.client
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.common.installation import CHECKOUT, started_module
from benchmarks.service.hostile_clients import ATTACKS
from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from protocol import EvaluatorClient
from protocol.errors import EvaluatorTimeout, LoadFailed

ADMIN_S = 120.0
"""Time limit of a step: a reload of all reads, rounds and opens two real networks while all clients ask."""

PAGE_S = 10.0
SILENT_CONNECTIONS = 80
"""Connections to the page's port: more than it serves concurrently."""

FULL_S = 3.0
"""Time of a full disk."""

SHAPE = "tiny-resnet"
UNKNOWN_FIELD = b"\xfa\x07\x01"
"""Begin of a field of one byte that no reader of networks knows."""

GUEST = "guest"
"""Alias of the network that is loaded and unloaded."""


class Trouble(ABC):
    """An action repeated every few seconds. done: counts by action. faults: unexpected results."""

    def __init__(self, pause_s: float) -> None:
        self.done: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._pause_s = pause_s
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(self._pause_s):
            try:
                self.step(number)
            except Exception as error:  # any error is part of the verdict
                self.faults[f"{type(self).__name__}: {type(error).__name__}: {error}"] += 1
            number += 1

    @abstractmethod
    def step(self, number: int) -> None:
        """Run one step."""

    def remark(self) -> str:
        """Return a further remark for the report."""
        return ""

    def close(self) -> None:  # noqa: B027  # most have started nothing
        """End what it has started, whatever has happened. Idempotent."""


class Attacks(Trouble):
    """Runs the attacks of hostile_clients.py in turn, each for some seconds and followed by a pause."""

    def __init__(self, port: int, seconds: float, pause_s: float) -> None:
        super().__init__(pause_s)
        self._port, self._seconds = port, seconds
        self._names = [name for name in ATTACKS if name != "busy"]

    def step(self, number: int) -> None:
        name = self._names[number % len(self._names)]
        words = ["--as", name, str(self._port), str(self._seconds)]
        process = started_module("service.hostile_clients", *words, stderr=subprocess.DEVNULL)
        try:
            process.wait(self._seconds + 1.0)  # a blocked attacker does not check the time
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.done[name] += 1


class KilledEngines(Trouble):
    """Engines that search until they are killed."""

    def __init__(self, address: str, folder: Path, pause_s: float) -> None:
        super().__init__(pause_s)
        self._address, self._folder = address, folder
        self._random = random.Random(1)

    def step(self, number: int) -> None:
        output = self._folder / "engine.txt"
        with output.open("w") as file:
            process = subprocess.Popen(
                [*CHECKOUT.engine, "--evaluator", self._address],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=CHECKOUT.environment(),
                cwd=CHECKOUT.folder,
                text=True,
            )
            try:
                assert process.stdin is not None
                process.stdin.write("position startpos\ngo infinite\n")
                process.stdin.flush()
                self._ends.wait(self._random.uniform(2.0, 5.0))
            finally:
                process.kill()
                process.communicate()
        self.done["killed"] += 1
        self.done["killed while searching"] += "info depth" in output.read_text()


class FullDisk(Trouble):
    """Lets processes write nothing into files for a moment, like a full disk. processes: by name."""

    def __init__(self, processes: Mapping[str, int], pause_s: float) -> None:
        super().__init__(pause_s)
        self._processes = [*processes.items()]

    def step(self, number: int) -> None:
        name, pid = self._processes[number % len(self._processes)]
        process = psutil.Process(pid)
        before = process.rlimit(psutil.RLIMIT_FSIZE)
        process.rlimit(psutil.RLIMIT_FSIZE, (0, before[1]))
        try:
            self._ends.wait(FULL_S)
        finally:
            process.rlimit(psutil.RLIMIT_FSIZE, before)
        self.done[name] += 1


class Administration(Trouble):
    """Loads, changes and unloads networks over ipc, and sends an operator's signals."""

    def __init__(self, address: str, process: subprocess.Popen[bytes], files: NetworkFiles, pause_s: float):
        super().__init__(pause_s)
        self._address, self._process, self._files = address, process, files
        self._loaded = ""

    def step(self, number: int) -> None:
        steps: list[Callable[[EvaluatorClient], str]] = [
            self._load,
            self._reload_second,
            self._reload_all,
            self._hang_up,
            self._alias,
            self._unload,
            self._tell,
        ]
        step = steps[number % len(steps)]
        with EvaluatorClient(self._address, timeout=ADMIN_S, name="soak administration") as client:
            try:
                self.done[step(client)] += 1
            except LoadFailed as error:  # from a device that was failing
                self.done[f"not loaded: {error}"] += 1
            except EvaluatorTimeout as error:
                self.faults[f"{step.__name__[1:]}: {error}"] += 1

    def _load(self, client: EvaluatorClient) -> str:
        self._loaded = client.load(str(self._files.second)).name
        client.alias(GUEST, self._loaded)
        return "load"

    def _reload_second(self, client: EvaluatorClient) -> str:
        if not self._loaded:
            return "nothing to reload"
        self._files.change(self._files.second)
        client.reload(self._loaded)
        return "reload"

    def _reload_all(self, client: EvaluatorClient) -> str:
        self._files.change(self._files.first)
        client.reload()
        return "reload of all"

    def _hang_up(self, client: EvaluatorClient) -> str:
        self._files.change(self._files.first)
        self._process.send_signal(signal.SIGHUP)
        return "SIGHUP"

    def _alias(self, client: EvaluatorClient) -> str:
        client.alias("another", client.network.name)
        client.alias("another", "")
        return "alias"

    def _unload(self, client: EvaluatorClient) -> str:
        if not self._loaded:
            return "nothing to unload"
        loaded, self._loaded = self._loaded, ""
        client.unload(loaded)
        return "unload"

    def _tell(self, client: EvaluatorClient) -> str:
        self._process.send_signal(signal.SIGUSR1)
        client.clients()
        return "SIGUSR1, clients"


class NetworkFiles:
    """The network files of a service; their content is replaced by renaming."""

    def __init__(self, folder: Path, *, real: bool = False) -> None:
        """real: the included network for CPUs, with another unknown field each."""
        self.first, self.second = folder / "first.pb", folder / "second.pb"
        self._folder = folder
        self._contents = [folder / f"content-{seed}.pb" for seed in range(4)]
        for seed, content in enumerate(self._contents):
            if real:
                included = CHECKOUT.folder / "evaluator" / "networks" / "wavefront-cpu.pb.gz"
                content.write_bytes(gzip.decompress(included.read_bytes()) + UNKNOWN_FIELD + bytes([seed]))
            else:
                write_network(random_network(SHAPE, seed), content)
        self._turns = {self.first: [0, 1], self.second: [2, 3]}
        self.change(self.first)
        self.change(self.second)

    def change(self, file: Path) -> None:
        """Replace a file's content with its other version."""
        self._turns[file].reverse()
        new = self._folder / "new.pb"
        shutil.copyfile(self._contents[self._turns[file][0]], new)
        new.replace(file)


class Page(Trouble):
    """Requests the page, its status, the metrics and the health checks, and sometimes opens silent
    connections.
    longest: maximum seconds of an answer."""

    def __init__(self, port: int, pause_s: float) -> None:
        super().__init__(pause_s)
        self._port = port
        self.longest = 0.0

    def remark(self) -> str:
        return f", longest answer {self.longest:.2f} s"

    def step(self, number: int) -> None:
        with ExitStack() as silent:
            if number % 30 == 29:
                for _ in range(SILENT_CONNECTIONS):
                    silent.enter_context(socket.create_connection(("127.0.0.1", self._port), PAGE_S))
                self.done["silent connections"] += SILENT_CONNECTIONS
            for path in ("/", "/status", "/metrics", "/live", "/ready"):
                begin = time.perf_counter()
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PAGE_S)
                try:
                    connection.request("GET", path)
                    answer = connection.getresponse()
                    answer.read()
                finally:
                    connection.close()
                self.longest = max(self.longest, time.perf_counter() - begin)
                self.done[path] += 1
                if answer.status != 200:
                    self.faults[f"{path} is answered {answer.status}"] += 1

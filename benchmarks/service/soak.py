# SPDX-License-Identifier: GPL-3.0-or-later
"""Soak test: an evaluator under all kinds of load and faults for a long time.

    python -m benchmarks.service.soak [--minutes N] [--real] [--backend NAME:OPTIONS ...] [--without TROUBLE]

Clients of all classes count every answer. A device fails and hangs, hostile clients attack, and engines are
killed. `wavefront web` has --web clients, many of whom leave at some moment, `wavefront lichess` has jobs.
Networks are loaded, changed and unloaded, signals are sent, and at times no file can be written. Finally the
service is drained and restarted.

Prints a line per minute, and finally counts of requests, answers and events. The exit status is 0 if every
request was answered, each result was correct, and the service drained and restarted. Also, memory must not
grow by more than --slope MB per minute, and the log must have no unexpected entries.

By default three devices answer like `random`, and results are compared bit by bit. One device fails each
minute and hangs every four minutes, more often in a soak under six minutes. With, for example, --backend
onnx, results are only checked for plausibility. --real serves and reloads the included network for CPUs
with onnx instead.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.common.installation import CHECKOUT, started_module
from benchmarks.common.processes import CommandError
from benchmarks.service import faltering_devices
from benchmarks.service.soak_clients import KINDS, WAIT_S, Report
from benchmarks.service.soak_troubles import (
    Administration,
    Attacks,
    FullDisk,
    KilledEngines,
    NetworkFiles,
    Page,
    Trouble,
)
from benchmarks.service.soak_users import Lichess, Web
from benchmarks.service.soak_verdict import Sample, read_log, slope

STEADY = "faltering:base=4,each=0.4"
START_S = 120.0
EXIT_TIMEOUT_S = 30.0
SAMPLE_S = 0.5
MOST_GROWTH = 0.5
TROUBLES = ("attacks", "administration", "page", "engines", "disk", "web", "lichess")
LEAST_MINUTES = 5.0
"""Minimum length of a soak for a verdict about memory growth."""

MOST_CROSSED = 1
"""Requests of a client that may cross the service's notice of its end: it gets EvaluatorLost."""


class Clients:
    """A process with the steady clients of a kind, and its latest report."""

    def __init__(self, kind: str, address: str, exact: bool) -> None:
        words = [kind, address, *(["--exact"] if exact else [])]
        self.kind = kind
        self.report = Report()
        self._latencies: list[float] = []
        self._lock = threading.Lock()
        self._process = started_module(
            "service.soak_clients", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            fields = json.loads(line)
            for name in ("errors", "losses"):
                fields[name] = Counter(fields[name])
            with self._lock:
                self.report = Report(**fields)
                self._latencies += self.report.latencies

    def latencies(self) -> list[float]:
        """Return milliseconds of the results since the last call."""
        with self._lock:
            taken, self._latencies = self._latencies, []
        return taken

    def finish(self) -> int:
        """Make them wait for what is in flight and exit; return the exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(WAIT_S + 30)
        except subprocess.TimeoutExpired:
            self.kill()
            return -1
        finally:
            self._reader.join()

    def kill(self) -> None:
        """Kill them. Idempotent."""
        self._process.kill()
        self._process.wait()


class Service:
    """The evaluator process, always started with the same addresses; it logs to a file."""

    def __init__(self, folder: Path, backends: Sequence[str], network: Path) -> None:
        self.port, self.page_port = _free_port(), _free_port()
        self.ipc = f"ipc://{folder}/evaluator"
        self.log = folder / "log.json"
        faltering_devices.install(folder / "plugins")
        paths = f"{CHECKOUT.variables['PYTHONPATH']}{os.pathsep}{folder / 'plugins'}"
        self._environment = CHECKOUT.environment(PYTHONPATH=paths)
        self._command = [*CHECKOUT.evaluator, "serve", "--network", str(network), "--no-latency-cache"]
        self._command += ["--log-format", "json", "--retry-s", "5", "--exit-timeout", str(EXIT_TIMEOUT_S)]
        self._command += ["--address", self.ipc, "--address", self.tcp, "--metrics-port", str(self.page_port)]
        for backend in backends:
            self._command += ["--backend", backend]
        self.process = self.start()

    @property
    def tcp(self) -> str:
        """Address for clients."""
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> subprocess.Popen[bytes]:
        """Start it and wait until it is ready. Raises CommandError."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stderr=log, env=self._environment, cwd=CHECKOUT.folder
            )
        give_up = time.perf_counter() + START_S
        while not self._is_ready():
            if self.process.poll() is not None or time.perf_counter() > give_up:
                self.process.kill()
                raise CommandError(f"the evaluator did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.1)
        return self.process

    def end(self) -> tuple[int | None, float]:
        """Ask it to drain and exit. Return exit status (None if it was killed) and duration in seconds."""
        begin = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            status: int | None = self.process.wait(EXIT_TIMEOUT_S + 30)
        except subprocess.TimeoutExpired:
            status = None
            self.kill()
        return status, time.perf_counter() - begin

    def kill(self) -> None:
        """Kill it. Idempotent."""
        self.process.kill()
        self.process.wait()

    def status(self) -> dict[str, Any]:
        """Return the page's status document. Raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.page_port}/status", timeout=10) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def _is_ready(self) -> bool:
        try:
            return bool(self.status()["ready"])
        except OSError:
            return False


def _faltering(minutes: float) -> str:
    """Return a device that fails and hangs, each at least once in a soak of half a minute, possibly while a
    network is loaded. After a failure there is time for a retry."""
    pace = min(1.0, minutes / 6)
    return f"faltering:base=4,each=0.4,fails={max(12.0, 60 * pace):g},hangs={240 * pace:g},stays=9"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Soak:
    """One soak test; `run` returns the reasons for failing it."""

    def __init__(
        self,
        minutes: float,
        backends: Sequence[str],
        most_growth: float,
        without: Sequence[str],
        folder: Path,
        *,
        web: int,
        real: bool,
    ) -> None:
        self._minutes, self._most_growth = minutes, most_growth
        files = NetworkFiles(folder, real=real)
        self._service = service = Service(folder, backends, files.first)
        exact = all(each.startswith(("faltering", "random")) for each in backends)
        # A short soak does everything, but faster.
        pace = min(1.0, minutes / 3)
        users = Web(service.ipc, folder, web, 1.0 * pace)
        troubles: dict[str, Trouble] = {
            "attacks": Attacks(service.port, 3.0 * pace, 5.0 * pace),
            "administration": Administration(service.ipc, service.process, files, 5.0 * pace),
            "page": Page(service.page_port, 1.0),
            "engines": KilledEngines(service.tcp, folder, 15.0 * pace),
            # Before the web server, which ends when it stops.
            "disk": FullDisk({"evaluator": service.process.pid, "web": users.pid}, 10.0 * pace),
            "web": users,
            "lichess": Lichess(service.ipc, folder, 5.0 * pace),
        }
        assert [*troubles] == [*TROUBLES]
        self._troubles = [trouble for name, trouble in troubles.items() if name not in without]
        self._clients = [
            Clients(kind, service.ipc if kind == "analysis" else service.tcp, exact) for kind in KINDS
        ]
        self._samples: list[Sample] = []
        self.against: list[str] = []
        self._lost: dict[str, int] = {}  # Requests of broken connections before the drain, by kind.

    def close(self) -> None:
        """Kill all processes."""
        for clients in self._clients:
            clients.kill()
        for trouble in self._troubles:
            trouble.close()
        self._service.kill()

    def run(self) -> list[str]:
        """Soak, drain, restart and evaluate."""
        for trouble in self._troubles:
            trouble.start()
        try:
            self._watch()
        finally:
            for trouble in self._troubles:
                trouble.stop()
        self._drain_and_restart()
        for clients in self._clients:
            if clients.finish() != 0:
                self.against.append(f"the clients of {clients.kind} did not end as they should")
        status, seconds = self._service.end()
        print(f"ended with exit status {status} after {seconds:.1f} s")
        if status != 0:
            self.against.append(f"exit status {status} at the end")
        self._conclude()
        return self.against

    def _watch(self) -> None:
        process = psutil.Process(self._service.process.pid)
        begin = time.perf_counter()
        end, line = begin + 60 * self._minutes, begin + 60
        print(" min     MB threads files queued state     answered/sent and p99 in ms of each kind")
        while (now := time.perf_counter()) < end:
            if self._service.process.poll() is not None:
                self.against.append(f"the service ended by itself: {self._service.process.returncode}")
                return
            with process.oneshot():
                sample = Sample(
                    now - begin, process.memory_info().rss, process.num_threads(), process.num_fds()
                )
            self._samples.append(sample)
            if now >= line:
                line += 60
                self._show(sample)
            time.sleep(SAMPLE_S)
        self._show(self._samples[-1])

    def _show(self, sample: Sample) -> None:
        try:
            document = self._service.status()
            queued, state = document["metrics"]["queued_positions"], document["state"]
        except OSError as error:
            queued, state = "?", f"{error}"
        cells = []
        for clients in self._clients:
            report, times = clients.report, clients.latencies()
            p99 = f"{np.percentile(times, 99):.0f}" if times else "-"
            cells.append(f"{clients.kind} {report.answered}/{report.sent} {p99}")
        print(
            f"{sample.seconds / 60:4.1f} {sample.rss / 1e6:6.0f} {sample.threads:7d} {sample.descriptors:5d} "
            f"{queued:>6} {state:9} {', '.join(cells)}",
            flush=True,
        )

    def _drain_and_restart(self) -> None:
        """Stop the service while clients are active, and restart it."""
        self._lost = {clients.kind: clients.report.broken_off for clients in self._clients}
        status, seconds = self._service.end()
        print(f"drained with exit status {status} after {seconds:.1f} s")
        if status != 0:
            self.against.append(f"exit status {status} after the drain")
        before = {clients.kind: clients.report.results for clients in self._clients}
        begin = time.perf_counter()
        self._service.start()
        give_up = begin + WAIT_S
        # The alias's network was lost with the process.
        missing = [clients for clients in self._clients if not KINDS[clients.kind].network]
        while missing and time.perf_counter() < give_up:
            missing = [each for each in missing if each.report.results <= before[each.kind]]
            time.sleep(0.1)
        print(f"started again, and all clients were answered after {time.perf_counter() - begin:.1f} s")
        for clients in missing:
            self.against.append(f"after the restart the clients of {clients.kind} were not answered")

    def _conclude(self) -> None:
        against = self.against
        print("\nkind          sent  results  errors cancelled  none wrong")
        for clients in self._clients:
            report = clients.report
            print(
                f"{clients.kind:9} {report.sent:8d} {report.results:8d} {sum(report.errors.values()):7d} "
                f"{report.cancelled:9d} {report.unanswered + report.broken_off:5d} {report.wrong:5d}  "
                f"{dict(report.errors)} {dict(report.losses)}"
            )
            missing = report.sent - report.answered
            crossed = MOST_CROSSED * KINDS[clients.kind].clients
            missing -= min(crossed, report.broken_off - self._lost.get(clients.kind, 0))
            if missing:
                against.append(f"{missing} requests of {clients.kind} were not answered")
            if not report.results:
                against.append(f"{clients.kind} has no results at all")
            if report.wrong:
                against.append(f"{report.wrong} results of {clients.kind} were wrong")
        for trouble in self._troubles:
            print(f"{type(trouble).__name__}: {dict(trouble.done)}{trouble.remark()}")
            against += [f"{fault} ({count} times)" for fault, count in trouble.faults.items()]
        growth = slope(self._samples)
        peak = max((sample.rss for sample in self._samples), default=0) / 1e6
        print(f"memory: {growth:+.2f} MB a minute, at most {peak:.0f} MB")
        if self._minutes >= LEAST_MINUTES and (math.isnan(growth) or growth > self._most_growth):
            against.append(f"memory grows by {growth:.2f} MB a minute")
        with self._service.log.open() as log:
            said, wrong = read_log(log)
        print("the log says:")
        for message, count in said.most_common():
            print(f"{count:7d} {message}")
        against += [f"the log says: {line}" for line in wrong]


def main(given: Sequence[str] | None = None) -> int:
    """Run the soak test and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="default 30")
    parser.add_argument("--backend", action="append", help="a device; repeat for several")
    parser.add_argument(
        "--slope", type=float, default=MOST_GROWTH, help=f"MB a minute (default {MOST_GROWTH})"
    )
    parser.add_argument(
        "--without", action="append", choices=TROUBLES, default=[], help="to find out what a fault comes of"
    )
    parser.add_argument("--web", type=int, default=20, help="clients of `wavefront web` (default 20)")
    parser.add_argument("--real", action="store_true", help="serve the included network for CPUs")
    arguments = parser.parse_args(given)
    backends = arguments.backend or [STEADY, STEADY]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak")))
        backends = (
            arguments.backend or ["onnx"] if arguments.real else [*backends, _faltering(arguments.minutes)]
        )
        soak = Soak(
            arguments.minutes,
            backends,
            arguments.slope,
            arguments.without,
            folder,
            web=arguments.web,
            real=arguments.real,
        )
        stack.callback(soak.close)
        against = soak.run()
    for reason in against:
        print(f"AGAINST: {reason}")
    print("failed" if against else "passed")
    return 1 if against else 0


if __name__ == "__main__":
    sys.exit(main())

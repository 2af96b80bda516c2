# SPDX-License-Identifier: GPL-3.0-or-later
"""An evaluator process whose network can be changed in all ways, for the tests of those who use it."""

import hashlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from engine.options import Options
from evaluator.network.random_network import random_network
from evaluator.network.schema import InputFormat
from evaluator.network.writer import write_network
from protocol import EvaluatorClient
from tests.engine.evaluation.evaluators import RunningEvaluator

OLD, NEW, FOREIGN = "old", "new", "foreign"
"""Networks. The last one wants other input planes."""

WAIT_S = 60.0
NOW = "the evaluator's network is now"


@cache
def content(network: str) -> bytes:
    """The file of a network."""
    made = random_network("tiny-attention", [OLD, NEW, FOREIGN].index(network))
    if network == FOREIGN:
        made = replace(made, input_format=InputFormat.CANONICAL_HECTOPLIES_112)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.pb.gz"
        write_network(made, path)
        return path.read_bytes()


def hash_of(network: str) -> str:
    return hashlib.sha256(content(network)).hexdigest()


@dataclass
class Operator:
    """Changes the networks of a running evaluator. path: the file of its first network, `served`."""

    evaluator: RunningEvaluator
    path: Path
    notes: list[str] = field(default_factory=list)
    noted: threading.Event = field(default_factory=threading.Event)

    @property
    def options(self) -> Options:
        return Options(evaluator=self.evaluator.address, hash=4, tree_memory=32, smart_pruning_factor=0.0)

    def log(self, text: str) -> None:
        """Of the program that uses the evaluator."""
        if text.startswith(NOW):
            self.notes.append(text)
            self.noted.set()

    def administer(self, change: Callable[[EvaluatorClient], object]) -> None:
        with EvaluatorClient(self.evaluator.address, timeout=WAIT_S, name="operator") as client:
            change(client)

    def file(self, name: str, network: str) -> Path:
        """A network's file, put into its place in one step."""
        new = self.path.with_name("new")
        new.write_bytes(content(network))
        return new.rename(self.path.with_name(f"{name}.pb.gz"))

    def reload(self, network: str = NEW) -> None:
        self.file("served", network)
        self.administer(lambda client: client.reload())

    def hang_up(self) -> None:
        """Reload by SIGHUP, and wait until that is done."""
        self.file("served", NEW)
        os.kill(self.evaluator.pid, signal.SIGHUP)
        with EvaluatorClient(self.evaluator.address, timeout=WAIT_S) as client:
            while client.status().networks[0].content_hash != hash_of(NEW):
                pass

    def swap(self, network: str = NEW) -> None:
        """Load, alias default, unload: the documented way to another network."""
        path = self.file("another", network)

        def change(client: EvaluatorClient) -> None:
            client.alias("default", client.load(str(path)).name)
            client.unload("served")

        self.administer(change)

    def unload(self) -> None:
        """Unload the network in use, and make no other one the default."""
        path = self.file("another", NEW)

        def change(client: EvaluatorClient) -> None:
            client.load(str(path))
            client.unload("served")

        self.administer(change)


@contextmanager
def operated(folder: Path, backend: str = "reference") -> Iterator[Operator]:
    """An evaluator of its own, which serves the old network as `served`."""
    folder.mkdir(exist_ok=True)
    path = folder / "served.pb.gz"
    path.write_bytes(content(OLD))
    flags = ("--backend", backend, "--network", str(path), "--no-latency-cache")
    with RunningEvaluator(folder, "e", *flags) as evaluator:
        yield Operator(evaluator, path)


CHANGES: dict[str, Callable[[Operator], None]] = {
    "reload": Operator.reload,
    "SIGHUP": Operator.hang_up,
    "swap": Operator.swap,
    "unload alone": Operator.unload,
    "other input planes": lambda operator: operator.swap(FOREIGN),
}

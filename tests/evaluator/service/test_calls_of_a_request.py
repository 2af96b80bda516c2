# SPDX-License-Identifier: GPL-3.0-or-later
"""How much Python one evaluation of one position runs in the service, from its arrival to the next one's."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from evaluator.devices.opening.loading import Loader
from evaluator.service.connections import hub_sockets
from evaluator.service.networks import NetworkToLoad
from evaluator.service.service import EvaluatorService
from protocol import EvaluatorClient
from tests.evaluator.service.echo import WAIT_S, numbered_batch
from tests.evaluator.service.harness import devices
from tests.paths import REPOSITORY

REQUESTS = 200

MODULES, CALLS = 20, 110
"""Limits for one request. 36 modules and 400 calls were too many."""

PRODUCT = tuple(f"{REPOSITORY / package}/" for package in ("evaluator", "protocol"))


class Calls:
    """Counts Python calls by module, on all threads that are started while `profiled` lasts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    @contextmanager
    def profiled(self) -> Iterator[None]:
        threading.setprofile(self._count)
        try:
            yield
        finally:
            threading.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            self.counts[frame.f_code.co_filename] += 1


@pytest.mark.skipif(not hub_sockets.AVAILABLE, reason="ZeroMQ needs more")
@pytest.mark.parametrize("private", [True, False], ids=["private", "tcp"])
def test_a_request_runs_little_python(tmp_path: Path, private: bool) -> None:
    calls, ready = Calls(), threading.Event()
    loader = Loader(devices("random"))
    service = EvaluatorService(loader, [NetworkToLoad(None)], private=private, on_ready=lambda _: ready.set())
    address = service.bind(f"ipc://{tmp_path}/socket" if private else "tcp://127.0.0.1:0")
    thread = threading.Thread(target=service.run)
    with calls.profiled():
        thread.start()
        assert ready.wait(WAIT_S)
    try:
        batch = numbered_batch(1)
        with EvaluatorClient(address, timeout=WAIT_S) as client:
            for _ in range(REQUESTS):
                client.evaluate(batch)
            calls.counts.clear()
            for _ in range(REQUESTS):
                client.evaluate(batch)
            counts = calls.counts.copy()
    finally:
        service.stop()
        thread.join(WAIT_S)
    crossed = sorted(Path(module).stem for module, count in counts.items() if count >= REQUESTS / 2)
    assert len(crossed) <= MODULES, crossed
    assert counts.total() <= CALLS * REQUESTS, counts

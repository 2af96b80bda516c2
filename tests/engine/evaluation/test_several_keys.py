# SPDX-License-Identifier: GPL-3.0-or-later
"""Several evaluators that demand keys: one search that goes on at the next, and many that use all."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from engine._core import Game
from engine.options import Options
from engine.search.limits import Limits
from engine.search.pool import SearchPool
from engine.search.session import Session
from tests.engine.uci.uci_process import eventually
from tests.evaluator.service.test_keys_process import Service, client_keys, serving

pytestmark = [pytest.mark.timeout(120), pytest.mark.integration]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """Both have one key, and one list of clients, on which `client` is."""
    client_keys(tmp_path, "client", allowed=True)
    with ExitStack() as stack:
        first = stack.enter_context(serving(tmp_path))
        first.line("listening on ")
        first.line("ready")
        second = stack.enter_context(serving(tmp_path))
        second.line("listening on ")
        second.line("ready")
        yield first, second


def options_with(two: tuple[Service, Service], keys: Path) -> Options:
    options = Options(backend="random", hash=1, tree_memory=16, smart_pruning_factor=0.0)
    addresses = ",".join(service.address for service in two)
    return options.changed(evaluator=addresses, evaluator_keys=str(keys))


def test_searches_use_all_and_continue_at_the_rest(tmp_path: Path, two: tuple[Service, Service]) -> None:
    assert all("#" in service.address for service in two)
    options = options_with(two, tmp_path / "client")
    with SearchPool() as pool:
        eventually(lambda: all(link.client is not None for link in pool.links(options)))
        begun = [pool.player(options).search(Game(), Limits(nodes=2000)) for _ in range(8)]
        two[1].process.kill()
        assert all(future.result(60).nodes >= 2000 for future in begun)


def test_each_evaluator_reports_a_missing_key(tmp_path: Path, two: tuple[Service, Service]) -> None:
    said: list[str] = []
    stranger = client_keys(tmp_path, "stranger", allowed=False)
    with closing(Session(options_with(two, stranger), log=said.append, fallback=True)) as session:
        assert session.search(Limits(nodes=100)).nodes >= 100
        assert len(psutil.Process().children()) > len(two)  # it has an evaluator of its own now
        assert any(all(service.address.partition("#")[0] in line for service in two) for line in said)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Several evaluators that stand in for each other: real processes that are killed, drained, broken and
started again, and searches that go on."""

import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

import engine.evaluation.link.link
from engine._core import Game
from engine.evaluation.errors import EvaluatorRefusalError
from engine.evaluation.link import failover
from engine.evaluation.link.encoding import encode_games
from engine.evaluation.link.link import EvaluatorLink
from engine.evaluation.link.process import EvaluatorSettings
from engine.evaluation.link.requests import Requests
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Limits
from engine.search.report import Report
from engine.search.session import Session
from evaluator.network.random_network import random_network
from evaluator.network.writer import write_network
from tests.engine.evaluation.evaluators import RunningEvaluator
from tests.engine.uci.uci_process import eventually
from tests.evaluator.service.plugin import Plugin
from tests.programs import suspend

pytestmark = pytest.mark.integration

RANDOM = Options().changed(backend="random", smart_pruning_factor=0.0, verbose_move_stats=True)
LONG = 400_000
ONNX = ["--backend", "onnx", "--no-latency-cache", "--network"]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is ready again is gone back to soon."""
    monkeypatch.setattr(failover, "RETURN_SECONDS", 0.1)


def addresses(*evaluators: RunningEvaluator) -> str:
    return ",".join(evaluator.address for evaluator in evaluators)


def address_of(link: EvaluatorLink) -> str:
    """Where the link is connected to; "" while it is not."""
    client = link.client
    return client.address if client is not None else ""


def once(action: Callable[[], None]) -> Callable[[Report], None]:
    """Does something at the first report of a search."""
    done = threading.Event()

    def look(report: Report) -> None:
        if not done.is_set():
            done.set()
            action()

    return look


def search_through(options: Options, action: Callable[[], None], *, fallback: bool = False) -> list[str]:
    """A search during which something happens; every visit must be accounted for. Returns the log."""
    said: list[str] = []
    with closing(Session(options, log=said.append, fallback=fallback)) as session:
        report = session.search(Limits(nodes=LONG), on_report=once(action))
    assert report.nodes >= LONG, said
    assert all(move.in_flight == 0 for move in report.statistics)
    assert sum(move.visits for move in report.statistics) == report.nodes - 1
    return said


@pytest.mark.parametrize("end", [RunningEvaluator.kill, RunningEvaluator.drain])
def test_a_search_continues_at_the_next_when_the_first_ends(
    two: tuple[RunningEvaluator, RunningEvaluator], end: Callable[[RunningEvaluator], None]
) -> None:
    first, second = two
    said = search_through(RANDOM.changed(evaluator=addresses(*two)), partial(end, first))
    killed = f"evaluator lost: the evaluator at {first.address} is gone" in said[0]
    assert killed == (end is RunningEvaluator.kill)
    assert any(f"using the evaluator at {second.address}" in line for line in said)


def test_one_that_has_drained_and_is_gone_is_not_waited_for(
    two: tuple[RunningEvaluator, RunningEvaluator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had said so: what is waited for is one that may come back."""
    monkeypatch.setattr(engine.evaluation.link.link, "FALLBACK_SECONDS", 1e9)
    first, _ = two

    def drain() -> None:
        process = psutil.Process(first.pid)
        first.drain()
        process.wait()

    said = search_through(RANDOM.changed(evaluator=first.address), drain, fallback=True)
    assert "starting an evaluator of its own instead" in said


@pytest.mark.skipif(os.name != "posix", reason="a drain needs SIGTERM")
def test_engine_starts_its_own_when_a_hanging_evaluator_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its device never answers: it drains, and does not end."""
    plugin = Plugin(tmp_path / "plugin")
    for variable, value in {"PYTHONPATH": str(tmp_path / "plugin"), **plugin.environment}.items():
        monkeypatch.setenv(variable, value)
    with RunningEvaluator(tmp_path, "a", "--backend", "plugin", "--hang-s", "1000") as given:

        def drain() -> None:
            plugin.hang()
            psutil.Process(given.pid).terminate()

        said = search_through(RANDOM.changed(evaluator=given.address), drain, fallback=True)
        plugin.work()
    assert "starting an evaluator of its own instead" in said
    assert sum("evaluator lost" in line for line in said) == 1


def test_the_last_resort_is_an_evaluator_of_its_own(two: tuple[RunningEvaluator, RunningEvaluator]) -> None:
    first, second = two

    def kill() -> None:
        first.kill()
        second.kill()

    said = search_through(RANDOM.changed(evaluator=addresses(*two)), kill, fallback=True)
    assert "starting an evaluator of its own instead" in said


@contextmanager
def endless_search(session: Session) -> Iterator[None]:
    """A search that goes on meanwhile; at the end every visit must be accounted for."""
    control, started = SearchControl(), threading.Event()
    reports: list[Report] = []

    def search() -> None:
        limits = Limits(infinite=True)
        reports.append(session.search(limits, control=control, on_report=lambda report: started.set()))

    thread = threading.Thread(target=search)
    thread.start()
    try:
        assert started.wait(60)
        yield
    finally:
        control.stop()
        thread.join(60)
    (report,) = reports
    assert not report.ended_early
    assert sum(move.visits for move in report.statistics) == report.nodes - 1


@pytest.mark.skipif(os.name != "posix", reason="a device that hangs does so at a named pipe")
@pytest.mark.parametrize("trouble", ["fail", "hang"])
def test_one_that_is_degraded_is_left_and_gone_back_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hasty: None, trouble: str
) -> None:
    plugins = Plugin(tmp_path / "plugin"), Plugin(tmp_path / "other")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "plugin"))
    devices = ["--backend", "plugin", "--backend", "random", "--retry-s", "0.2", "--hang-s", "0.5"]
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    with ExitStack() as stack:
        evaluators = []
        for name, plugin in zip("ab", plugins, strict=True):
            for variable, value in plugin.environment.items():
                monkeypatch.setenv(variable, value)
            evaluators.append(stack.enter_context(RunningEvaluator(tmp_path, name, *devices)))
        first, second = evaluators
        session = Session(RANDOM.changed(evaluator=addresses(first, second)), log=said.put)
        stack.callback(session.close)
        stack.enter_context(endless_search(session))
        getattr(plugins[0], trouble)()
        # On a busy machine the request may first be answered with the device's failure.
        choices = (text for text in iter(lambda: said.get(timeout=60), "") if text.startswith("using"))
        line = next(choices)
        assert line.startswith(f"using the evaluator at {second.address}, as ")
        assert f"{first.address} is degraded (" in line or "the device hangs" in line
        plugins[0].work()
        assert next(choices) == f"using the evaluator at {first.address}"


def test_between_searches_too_the_first_that_is_well_is_connected(
    two: tuple[RunningEvaluator, RunningEvaluator], hasty: None
) -> None:
    first, second = two
    with closing(
        EvaluatorLink(EvaluatorSettings.of(RANDOM.changed(evaluator=addresses(*two))), print)
    ) as link:
        link.start()
        assert link.wait(60) is not None and address_of(link) == first.address
        first.kill()
        eventually(lambda: address_of(link) == second.address)
        first.start()
        eventually(lambda: address_of(link) == first.address)


def network_file(folder: Path, seed: int) -> str:
    path = folder / f"{seed}.pb.gz"
    write_network(random_network("tiny-attention", seed=seed), path)
    return str(path)


@pytest.mark.parametrize("same", [True, False], ids=["same network", "another network"])
def test_embedded_evaluator_is_left_for_a_given_one(tmp_path: Path, hasty: None, same: bool) -> None:
    """If that has another network, when the next search begins: none is answered by two networks."""
    flags = [] if same else [*ONNX, network_file(tmp_path, 1)]
    given = RunningEvaluator(tmp_path, "a"), RunningEvaluator(tmp_path, "b", *flags)
    said: list[str] = []
    with closing(
        Session(RANDOM.changed(evaluator=addresses(*given)), log=said.append, fallback=True)
    ) as session:
        assert session.ready(60)
        assert session.start_evaluator().pid is not None
        link = session.start_evaluator()
        with given[1]:
            with endless_search(session):
                eventually(lambda: link._next is not None or address_of(link) == given[1].address)
                assert (link._next is None) == same
            assert session.search(Limits(nodes=1000)).nodes >= 1000
            assert address_of(link) == given[1].address
            assert session.start_evaluator().pid is None


def test_one_with_another_network_is_no_choice(tmp_path: Path) -> None:
    said: list[str] = []
    networks = [network_file(tmp_path, seed) for seed in (1, 2)]
    flags = [[*ONNX, network] for network in networks]
    with (
        RunningEvaluator(tmp_path, "a", *flags[0]) as first,
        RunningEvaluator(tmp_path, "b", *flags[1]) as second,
        RunningEvaluator(tmp_path, "c", *flags[0]) as third,
        closing(
            Session(RANDOM.changed(evaluator=addresses(first, second, third)), log=said.append)
        ) as session,
    ):
        session.search(Limits(nodes=300))
        first.kill()
        assert session.search(Limits(nodes=3000)).nodes >= 3000
    (unfit,) = (line for line in said if line.endswith("is not used"))
    assert unfit.startswith(f"the evaluator at {second.address} cannot serve the network: it serves 2 (")
    assert "and the others serve 1 (" in unfit
    (used,) = (line for line in said if line.startswith("using the evaluator at "))
    assert used.startswith(f"using the evaluator at {third.address}, as ")


def test_a_network_that_a_file_names_is_loaded_at_the_others_too(tmp_path: Path) -> None:
    network = network_file(tmp_path, 1)
    flags = [*ONNX, network_file(tmp_path, 2)]
    said: list[str] = []
    with RunningEvaluator(tmp_path, "a", *flags) as first, RunningEvaluator(tmp_path, "b", *flags) as second:
        options = RANDOM.changed(evaluator=addresses(first, second), weights=network)
        with closing(EvaluatorLink(EvaluatorSettings.of(options), said.append)) as link:
            link.start()
            before = link.wait(60)
            assert before is not None and before.network.name == "1"
            first.kill()
            eventually(lambda: link.client not in (None, before))
            after = link.client
            assert after is not None and after.address == second.address
            assert after.network.identity == before.network.identity


def test_one_that_takes_smaller_requests_is_no_choice(tmp_path: Path) -> None:
    said: list[str] = []
    with (
        RunningEvaluator(tmp_path, "a") as first,
        RunningEvaluator(tmp_path, "b", "--max-request", "64") as second,
    ):
        options = RANDOM.changed(evaluator=addresses(first, second))
        with closing(EvaluatorLink(EvaluatorSettings.of(options), said.append)) as link:
            link.start()
            assert link.wait(60) is not None
            first.kill()
            eventually(lambda: any("--max-request 4096" in line for line in said))
            assert link.client is None or link.client.address == first.address


def test_a_wrong_list_in_the_environment_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAVEFRONT_EVALUATOR", "tcp://a:5577,b")
    link = EvaluatorLink(EvaluatorSettings.of(RANDOM), print)
    link.start()
    with pytest.raises(EvaluatorRefusalError, match="WAVEFRONT_EVALUATOR: 'b' is no address"):
        link.wait(30)
    link.close()


def test_requests_go_to_a_better_evaluator_at_once(two: tuple[RunningEvaluator, RunningEvaluator]) -> None:
    """The one that has them may be degraded because it never answers."""
    first, second = two
    unsent: list[str] = []
    batch, _ = encode_games([Game()], input_format=1)
    link = EvaluatorLink(EvaluatorSettings.of(RANDOM.changed(evaluator=addresses(*two))), print)
    requests: Requests[str] = Requests(link, "play", unsent.append)
    try:
        link.start()
        assert link.wait(60) is not None
        requests.connect()
        suspend(psutil.Process(first.pid))
        assert requests.send(batch, "a")
        link._change_to(second.address)
        assert requests.receive(None) is None
        assert unsent == ["a"]
        assert requests.send(batch, "a")
        answer = requests.receive(None)
        assert answer is not None and answer[0] == "a"
    finally:
        psutil.Process(first.pid).resume()
        link.close()

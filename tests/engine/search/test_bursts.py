# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches whose calls go without the interpreter, with a real evaluator process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from operator import attrgetter
from types import FrameType
from typing import Any

import psutil
import pytest

from engine.evaluation.send.pooled_pipeline import PooledPipeline
from engine.options import Options
from engine.search.control import SearchControl
from engine.search.limits import Limits
from engine.search.loop import driver, stopping
from engine.search.report import Report
from engine.search.session import Session
from tests.engine.core.tree.search_helpers import MIDDLEGAME

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are such connections on Linux only")

ENDGAME = "8/5k2/3p4/1p1Pp2p/pP2Pp1P/P4P1K/8/8 b - - 92 50"
"""Whose lines soon end by the 50-move rule."""

NODES = 3000


@pytest.fixture(scope="module")
def evaluator() -> Iterator[str]:
    """The address of an engine's own evaluator."""
    with closing(Session(Options(backend="random"))) as owner:
        assert owner.ready(60.0)
        client = owner.start_evaluator().client
        assert client is not None
        yield client.address


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """An entry for each burst: the core's exchange, or None if Python had to go on."""
    made: list[Any] = []
    lend = PooledPipeline.lend

    def recorded(pipeline: PooledPipeline[Any]) -> Any:
        made.append(lend(pipeline))
        return made[-1]

    monkeypatch.setattr(PooledPipeline, "lend", recorded)
    return made


def searched(evaluator: str, fen: str, limits: Limits, *, bursts: bool, **options: Any) -> Report:
    made = Options(evaluator=evaluator, verbose_move_stats=True, **options)
    with closing(Session(made)) as session, pytest.MonkeyPatch.context() as patched:
        # A check by time sees the visits of a collect before those of its batch.
        patched.setattr(stopping, "CHECK_SECONDS", 60.0)
        patched.setattr(driver, "BURST_SECONDS", 60.0)
        if not bursts:
            patched.setattr(PooledPipeline, "lend", lambda _: None)
        assert session.ready(60.0)
        session.set_position(fen)
        return session.search(limits)


FACTS = ("best_move", "lines", "nodes", "playouts", "depth", "selective_depth", "cache_hits", "evaluations")
facts = attrgetter(*FACTS, "batches", "statistics", "root_statistics")
"""All of a report that does not depend on the time it took."""


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        (Limits(nodes=NODES), {"look_ahead": 0}),
        (Limits(nodes=NODES), {"look_ahead": 32}),
        (Limits(nodes=NODES), {"minibatch_size": 7}),
        (Limits(nodes=NODES), {"look_ahead": 16, "nodes_as_playouts": True, "transposition_visits": 16}),
        (Limits(depth=4, nodes=20_000), {"look_ahead": 16}),
        (Limits(depth=5, nodes=20_000), {"look_ahead": 16}),
    ],
)
@pytest.mark.parametrize("fen", [MIDDLEGAME, ENDGAME])
def test_the_tree_is_the_one_that_the_interpreter_makes(
    evaluator: str, lent: list[Any], fen: str, limits: Limits, options: dict[str, Any]
) -> None:
    # Pruning goes by the clock, and how far batches are filled by the times that were measured.
    options = {"batches_in_flight": 1, "smart_pruning_factor": 0.0, **options}
    with_them, without = (
        searched(evaluator, fen, limits, bursts=bursts, **options) for bursts in (True, False)
    )
    assert facts(with_them) == facts(without)
    assert any(lent)


def test_a_search_by_nodes_makes_few_calls_of_few_modules(evaluator: str) -> None:
    """Of three searches the best counts: the evaluator may announce something during one."""
    ran: list[str] = []
    found = []

    def count(frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            ran.append(frame.f_globals["__name__"])

    with closing(Session(Options(evaluator=evaluator))) as session:
        assert session.ready(60.0)
        session.search(Limits(nodes=1))  # Imports and dataclasses are made once.
        for _ in range(3):
            session.clear()
            ran.clear()
            sys.setprofile(count)
            try:
                report = session.search(Limits(nodes=200))
            finally:
                sys.setprofile(None)
            ours = {name for name in ran if name.startswith(("engine.", "protocol."))}
            found.append((len(ours), len(ran) / report.batches, sorted(ours)))
    modules, calls, names = min(found)
    assert modules <= 28, names
    assert calls <= 40


@pytest.mark.integration
def test_the_search_continues_when_the_evaluator_dies(lent: list[Any]) -> None:
    """What was under way is sent again to the next one: not a visit is lost or made twice."""
    killed: list[int] = []

    def kill(session: Session) -> Callable[[Report], None]:
        def on_report(report: Report) -> None:
            pid = session.start_evaluator().pid
            if not killed and pid is not None:
                killed.append(report.nodes)
                psutil.Process(pid).kill()

        return on_report

    with closing(Session(Options(backend="random", smart_pruning_factor=0.0))) as session:
        assert session.ready(60.0)
        report = session.search(Limits(nodes=200_000), on_report=kill(session))
    assert killed
    assert report.nodes == 200_000
    assert any(lent)


def test_a_report_comes_in_time_and_stop_is_seen(evaluator: str, lent: list[Any]) -> None:
    """Searches without an end report as they go, from within."""
    control, reports = SearchControl(), []

    def on_report(report: Report) -> None:
        reports.append(report.seconds)
        if len(reports) == 3:
            control.stop()

    with closing(Session(Options(evaluator=evaluator))) as session:
        assert session.ready(60.0)
        session.search(Limits(infinite=True), control=control, on_report=on_report)
    assert len(reports) == 3
    assert any(lent)


@pytest.mark.integration
def test_limits_of_any_size_are_kept(evaluator: str) -> None:
    """A clock of millions of years, and more visits than 32 bits count."""
    control = SearchControl()
    with closing(Session(Options(evaluator=evaluator))) as session:
        assert session.ready(60.0)
        limits = Limits(movetime_ms=10**17, nodes=10**30)
        report = session.search(limits, control=control, on_report=lambda report: control.stop())
    assert report.nodes > 0

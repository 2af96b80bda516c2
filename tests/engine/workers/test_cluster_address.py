# SPDX-License-Identifier: GPL-3.0-or-later
"""What `--ray` says when there is no cluster to play on. Needs none."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from engine.apps.games.openings import Opening
from engine.apps.selfplay.archive import FinishedGame
from engine.apps.selfplay.campaign import SelfPlayJob
from engine.apps.selfplay.config import SelfPlayConfig
from engine.workers.executor import ExecutorError
from engine.workers.ray import RayExecutor


def opened(address: str, config: SelfPlayConfig) -> None:
    async def run() -> None:
        job = SelfPlayJob(config, (Opening("initial position"),))
        executor = RayExecutor[FinishedGame](address, job, lambda text: None)
        try:
            await executor.open()
        finally:
            await executor.close()

    asyncio.run(run())


def test_without_ray_the_package_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorError, match=r"pip install '\.\[cluster\]'"):
        opened("auto", SelfPlayConfig(output=str(tmp_path)))


@pytest.mark.parametrize(("set_by_user", "seen_by_ray"), [(None, "0"), ("1", "1")])
def test_ray_reports_only_if_the_user_says_so(
    set_by_user: str | None, seen_by_ray: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", set_by_user or "")
    if set_by_user is None:
        monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorError):
        opened("local", SelfPlayConfig(output=str(tmp_path)))
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == seen_by_ray


def test_an_address_where_nobody_listens_is_an_error_at_once(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install '.[cluster]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(ExecutorError, match=f"{address}"):
            opened(address, SelfPlayConfig(output=str(tmp_path)))

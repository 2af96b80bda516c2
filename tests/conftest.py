# SPDX-License-Identifier: GPL-3.0-or-later
"""Signals and ends of programs that tests start, and files that a selection by marks leaves out."""

import asyncio
import inspect
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# No test asserts a time, and a busy machine takes long for an example.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Tests and programs share the processors. PyTorch's threads wait for each other in loops, which takes most of
# the time where there are more of them than processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")

HANG_SECONDS = 240
"""Limit of a test that is a coroutine function."""

# A shell starts background jobs with the interrupt ignored, and programs inherit that: those that tests start
# are to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function."""
    test = pyfuncitem.function
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(asyncio.wait_for(test(**arguments), HANG_SECONDS))
    return True


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End programs that the tests of a module share: other modules count the children of this process."""
    for name in ("tests.engine.uci.uci_process", "tests.engine.evaluation.evaluators"):
        sharing = sys.modules.get(name)
        if sharing is not None and (nextitem is None or nextitem.path != item.path):
            sharing.end_shared()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file whose `pytestmark` has a mark that `-m` excludes: importing all takes seconds."""
    expression = config.option.markexpr
    if collection_path.suffix != ".py" or not re.fullmatch(r"not \w+( and not \w+)*", expression):
        return None
    marks = re.search(
        r"^pytestmark = (\[.*?\]$|.*?$)", collection_path.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    excluded = set(re.findall(r"not (\w+)", expression))
    return True if marks and excluded & set(re.findall(r"mark\.(\w+)", marks[1])) else None

# SPDX-License-Identifier: GPL-3.0-or-later
"""Which backends the conformance suite runs for:

python -m pytest tests/backends                                  all that this machine can run
python -m pytest tests/backends --backend gpu                    one, as `serve --backend` names it
python -m pytest tests/backends --backend gpu:precision=fp32 --device nvidia:1
"""

import os
from pathlib import Path

import pytest

# Tests run side by side on few cores, where the spinning threads of several BLAS pools starve each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from evaluator.backends.gpu.driver.target import Precision
from tests.backends.subjects import DEFAULT, ON_FIBERS, Subject, named, on_fibers, runnable
from tests.evaluator.backends.gpu.conftest import kernel_cache, rocm, runtime  # noqa: F401 - fixtures


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("backends", "conformance suite")
    group.addoption("--backend", action="append", metavar="NAME", help="as serve takes it; may be repeated")
    group.addoption("--device", default="", metavar="NAME", help="as `python -m evaluator devices` lists it")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    # Without tests/backends on the command line pytest reads this file too late for its options.
    chosen = metafunc.config.getoption("--backend", None)
    fibers = pytest.param(ON_FIBERS, marks=pytest.mark.kernels)
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("subject", chosen or [*runnable(), fibers], indirect=True)
    if "quick_subject" in metafunc.fixturenames:
        metafunc.parametrize("quick_subject", chosen or runnable(), indirect=True)


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Subject:
    """The backend under test; one of them runs on CPU fibers."""
    if request.param == ON_FIBERS:
        started = request.getfixturevalue("runtime")
        cache: Path = request.getfixturevalue("kernel_cache")
        return on_fibers(started, cache, Precision.FP32, "gfx1100")
    if request.param in DEFAULT:
        return DEFAULT[request.param]()
    return named(request.param, device=request.config.getoption("--device", ""))


@pytest.fixture
def quick_subject(request: pytest.FixtureRequest) -> Subject:
    """The same without fibers, for what would take minutes on them."""
    if request.param in DEFAULT:
        return DEFAULT[request.param]()
    return named(request.param, device=request.config.getoption("--device", ""))

# SPDX-License-Identifier: GPL-3.0-or-later
"""An evaluator that the commands of a module share."""

from collections.abc import Iterator

import pytest

from tests.engine.evaluation.evaluators import RunningEvaluator


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an evaluator with the backend `random`."""
    with RunningEvaluator(tmp_path_factory.mktemp("e"), "e") as running:
        yield running.address

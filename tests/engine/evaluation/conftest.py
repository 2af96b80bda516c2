# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests of the way to the evaluator share."""

from collections.abc import Iterator

import pytest

from engine.evaluation.link.link import EvaluatorLink
from engine.evaluation.link.process import EvaluatorSettings
from engine.options import Options
from tests.engine.evaluation.evaluators import RunningEvaluator


@pytest.fixture(scope="module")
def evaluators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningEvaluator]]:
    """Evaluators that the tests of a module share. Tests use `two` or `three`, which start what has ended."""
    made = [RunningEvaluator(tmp_path_factory.mktemp("e"), name) for name in "abc"]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def two(evaluators: list[RunningEvaluator]) -> tuple[RunningEvaluator, RunningEvaluator]:
    return evaluators[0].ensure(), evaluators[1].ensure()


@pytest.fixture
def three(evaluators: list[RunningEvaluator]) -> list[RunningEvaluator]:
    return [each.ensure() for each in evaluators]


@pytest.fixture
def link() -> Iterator[EvaluatorLink]:
    made = EvaluatorLink(EvaluatorSettings.of(Options(backend="random")), print)
    made.start()
    assert made.wait(60) is not None
    yield made
    made.close()

# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests of the way to the evaluator share."""

from collections.abc import Iterator

import pytest

from engine.evaluation.link.link import EvaluatorLink
from engine.evaluation.link.process import EvaluatorSettings
from engine.options import Options


@pytest.fixture
def link() -> Iterator[EvaluatorLink]:
    made = EvaluatorLink(EvaluatorSettings.of(Options(backend="random")), print)
    made.start()
    assert made.wait(60) is not None
    yield made
    made.close()

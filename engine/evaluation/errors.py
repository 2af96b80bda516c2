# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of a search that gets no evaluations."""

from __future__ import annotations


class NoEvaluatorError(RuntimeError):
    """No evaluator can be had. The message says why and what to do."""


class EvaluatorLateError(NoEvaluatorError):
    """The evaluator was not there before the limits ended the search. It may come yet."""


class EvaluatorDrainingError(NoEvaluatorError):
    """The evaluator is there and about to end: another one is needed."""


class EvaluatorRefusalError(NoEvaluatorError):
    """The evaluator gave a reason that trying again will not change, such as a damaged network file."""


class EvaluatorKilledError(NoEvaluatorError):
    """The evaluator that was started was killed (SIGKILL) before it was ready: not by a fault of its own."""


class EvaluatorCrashedError(NoEvaluatorError):
    """The evaluator crashed before it was ready, as in a driver. Its next start avoids the device."""


class NetworkChangedError(RuntimeError):
    """The evaluator has another network now: what the search has found is void, and it has to start over."""


class PipelineError(RuntimeError):
    """The evaluator will not evaluate what this search sends. The message says why."""

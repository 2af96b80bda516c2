# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of a search that receives no evaluations."""

from __future__ import annotations

from protocol.common.printing import ReportedError


class NoEvaluatorError(ReportedError, RuntimeError):
    """No evaluator is available. The message gives the reason and the remedy."""


class EvaluatorLateError(NoEvaluatorError):
    """The limits ended the search before the evaluator was ready. It may still become ready."""


class EvaluatorDrainingError(NoEvaluatorError):
    """The evaluator is shutting down: another one is needed."""


class EvaluatorRefusalError(NoEvaluatorError):
    """The evaluator refused for a reason that a retry will not change, such as a damaged network file."""


class EvaluatorKilledError(NoEvaluatorError):
    """The started evaluator was killed (SIGKILL) before it was ready, through no fault of its own."""


class EvaluatorCrashedError(NoEvaluatorError):
    """The evaluator crashed before it was ready, as in a driver. Its next start avoids the device."""


class NetworkChangedError(RuntimeError):
    """The evaluator's network has changed: the tree is invalid, and the search must restart."""


class PipelineError(ReportedError, RuntimeError):
    """The evaluator rejects the batches of this search. The message gives the reason."""

# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices that a backend names, and an evaluator process for each of them.

Matches send small batches. One process for four fast GPUs answered 170,000 positions of a match a second;
four processes kept these GPUs three times as busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from engine.evaluation.link.process import EvaluatorProcess, EvaluatorSettings, evaluator_command
from engine.options import Options
from evaluator.backends import for_each_device, parse_backend
from training.errors import TrainingError


def backends_of(backend: str) -> list[str]:
    """Return the backend once for each device that it names. Raises TrainingError and BackendError."""
    if "device=" not in backend:
        return [backend]
    try:
        name, settings = parse_backend(backend)
    except ValueError as error:
        raise TrainingError(str(error)) from None
    each = for_each_device(name, settings)
    return [f"{name}:{','.join(f'{key}={value}' for key, value in one.items())}" for one in each]


@contextmanager
def evaluators(backends: list[str], network: Path) -> Iterator[str]:
    """Start an evaluator process for each backend, and yield their addresses, joined by commas.

    network: that they load first. They end with this process, however that ends. Raises NoEvaluatorError.
    """
    with ExitStack() as stack:
        processes = []
        for backend in backends:
            settings = EvaluatorSettings.of(Options(weights=str(network), backend=backend))
            processes.append(EvaluatorProcess(evaluator_command(settings)))
            stack.callback(processes[-1].close)
        yield ",".join(process.await_ready() for process in processes)

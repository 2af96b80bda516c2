# SPDX-License-Identifier: GPL-3.0-or-later
"""The backends under test: each with how to open it and how far it may be off."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from evaluator.backends import Backend, available_backends, open_backend, parse_backend
from evaluator.backends.common.agreement import Tolerance
from evaluator.backends.gpu.driver.target import Precision
from evaluator.network import NetworkSpec
from protocol.batch import EvaluationBatch
from tests.evaluator.backends.gpu.fibers import open_on_fibers
from tests.hip_runtime.standin import Runtime


class Opens(Protocol):
    """Opens a network, with options of the backend on top of the subject's own."""

    def __call__(self, network: NetworkSpec, **options: Any) -> Backend: ...


@dataclass(frozen=True)
class Subject:
    """A backend under test. tolerance: None for what the backend says of itself. slow: it takes seconds for a
    position of a tiny network, and gets small batches only. deterministic: the options that make a position's
    bits independent of its batch; None if nothing does."""

    name: str
    open: Opens
    tolerance: Tolerance | None = None
    slow: bool = False
    deterministic: dict[str, Any] | None = None

    def tolerance_of(self, backend: Backend) -> Tolerance:
        return self.tolerance or backend.tolerance


def assert_close(subject: Subject, backend: Backend, one: EvaluationBatch, other: EvaluationBatch) -> None:
    tolerance = subject.tolerance_of(backend)
    assert one.logits.shape == other.logits.shape
    assert np.abs(one.logits - other.logits).max(initial=0) <= tolerance.logits
    assert np.abs(one.wdl - other.wdl).max() <= tolerance.wdl
    assert np.abs(one.moves_left - other.moves_left).max() <= tolerance.moves_left


REFERENCE = Tolerance(2e-5, 5e-6, 2e-4)
"""lc0's own rounding is 1.3e-5 of a logit, against which the golden networks measure."""

ONNX = Tolerance(5e-5, 1e-5, 5e-4)


def named(spec: str, tolerance: Tolerance | None = None, device: str = "") -> Subject:
    """From "gpu:precision=fp32", as the evaluator's command line has it. Skips the calling test where the
    backend cannot run."""
    name, options = parse_backend(spec)
    if device:
        options["device"] = device
    known = available_backends()
    if name not in known:
        pytest.exit(f"there is no backend {name!r}; known are {', '.join(known)}", returncode=2)
    if known[name] is not None:
        pytest.skip(f"backend {name}: {known[name]}")
    if name == "gpu":
        options.setdefault("max_batch", 64)

    def open(network: NetworkSpec, **more: Any) -> Backend:
        return open_backend(name, network, **(options | more))

    return Subject(spec, open, tolerance, deterministic={"deterministic": True} if name == "gpu" else None)


def on_fibers(runtime: Runtime, cache: Path, precision: Precision, target: str) -> Subject:
    """The gpu backend through hip-python on the stand-in runtime. cache: of compiled kernels."""

    def open(network: NetworkSpec, **options: Any) -> Backend:
        buckets = options.pop("buckets", (1, 4))
        return open_on_fibers(
            runtime, network, cache, devices=target, precision=precision, buckets=buckets, **options
        )

    return Subject(
        f"gpu on fibers, {target}", open, slow=True, deterministic={"deterministic": True, "buckets": (1, 4)}
    )


DEFAULT: dict[str, Callable[[], Subject]] = {
    "reference-float64": lambda: named("reference:dtype=float64", REFERENCE),
    "reference-float32": lambda: named("reference:dtype=float32", REFERENCE),
    "onnx": lambda: named("onnx", ONNX),
    "gpu-fp16": lambda: named("gpu:precision=fp16"),
    "gpu-fp32": lambda: named("gpu:precision=fp32"),
    "gpu-deterministic": lambda: replace(
        named("gpu:precision=fp16,deterministic=true"), name="deterministic"
    ),
}
"""What is tested without --backend, besides the gpu backend on fibers."""

ON_FIBERS = "gpu-fibers"


def runnable() -> list[str]:
    """Those of DEFAULT whose backend can run here."""
    reasons = available_backends()
    return [name for name in DEFAULT if reasons[name.partition("-")[0]] is None]

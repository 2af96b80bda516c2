"""The `onnx` backend: an onnxruntime session on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort

from evaluator.backends.base import Backend, BackendError
from evaluator.backends.batches import RULE50_PLANE, evaluation, mask_bits
from evaluator.backends.onnx.model import build_model
from evaluator.backends.threads import default_threads
from evaluator.network.spec import NetworkSpec
from protocol.batch import PLANES, EvaluationBatch, PositionBatch

NEEDS_NETWORK = True


def unavailable() -> str | None:
    return None


def open(network: NetworkSpec, *, threads: int | None = None) -> OnnxBackend:
    return OnnxBackend(network, threads=threads)


class OnnxBackend(Backend):
    """float32 on the CPU."""

    name = "onnx"
    max_batch = 1024

    def __init__(self, network: NetworkSpec, *, threads: int | None = None) -> None:
        self.threads = threads or default_threads()
        self.device = (
            f"CPU, {self.threads} thread{'s' if self.threads > 1 else ''} (onnxruntime {ort.__version__})"
        )
        self._has_wdl = network.value.wdl
        self._outputs = ["policy", "wdl" if self._has_wdl else "value"]
        if network.moves_left is not None:
            self._outputs.append("moves_left")
        try:
            self._session: ort.InferenceSession | None = ort.InferenceSession(
                build_model(network, packed=True).SerializeToString(),
                _session_options(self.threads),
                providers=["CPUExecutionProvider"],
            )
        except Exception as error:  # onnxruntime's exceptions share no base of their own
            raise BackendError(f"onnxruntime cannot open the network: {error}") from error

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        outputs = self._run(batch)
        return evaluation(batch, outputs[0], outputs[1], outputs[2] if len(outputs) > 2 else None)

    def _run(self, batch: PositionBatch) -> list[Any]:
        if self._session is None:
            raise BackendError("the onnx backend is closed")
        values = np.ones((len(batch), PLANES, 1), np.float32)
        values[:, RULE50_PLANE, 0] = batch.positions["rule50"]
        feed = {"bits": mask_bits(batch.positions), "values": values}
        try:
            return list(self._session.run(self._outputs, feed))
        except Exception as error:
            raise BackendError(f"onnxruntime failed: {error}") from error

    def close(self) -> None:
        self._session = None


def _session_options(threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads spin between the operators of a batch, where sleeping costs more, but not between batches, where
    # the search wants the cores.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return options

"""The `onnx` backend: an onnxruntime session on the CPU."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from evaluator.backends.base import Backend, BackendError
from evaluator.backends.batches import RULE50_PLANE, evaluation, mask_bits
from evaluator.backends.onnx.model import build_model
from evaluator.backends.probe import probe_batch
from evaluator.backends.threads import default_threads
from evaluator.network.spec import AttentionBody, NetworkSpec
from protocol.batch import PLANES, EvaluationBatch, PositionBatch

_log = logging.getLogger(__name__)

NEEDS_NETWORK = True

MAX_LOGITS_ERROR = 0.05
MAX_VALUE_ERROR = 0.05


@dataclass(frozen=True, slots=True)
class QuantisationError:
    """What int8 changes on 64 positions. logits: RMS difference over the standard deviation of the logits;
    value: the largest difference of W, D or L (or of the single value)."""

    logits: float
    value: float


def unavailable() -> str | None:
    return None


def open(network: NetworkSpec, *, threads: int | None = None, int8: bool = False) -> OnnxBackend:
    return OnnxBackend(network, threads=threads, int8=int8)


class OnnxBackend(Backend):
    """One session. float32 throughout, or, with int8, the encoders' products in 8 bits.

    int8 weights are quantised once, activations as they come, with one scale for a whole batch: a position's
    result then depends a little on its batch. The error against float32 is measured when the backend opens,
    logged, kept in `quantisation_error`, and too large an error is refused with BackendError.
    """

    name = "onnx"
    max_batch = 1024

    def __init__(self, network: NetworkSpec, *, threads: int | None = None, int8: bool = False) -> None:
        self.threads = threads or default_threads()
        self.device = f"CPU, {self.threads} thread{'s' if self.threads > 1 else ''}"
        self.quantisation_error: QuantisationError | None = None
        self._outputs = ["policy", "wdl" if network.value.wdl else "value"]
        if network.moves_left is not None:
            self._outputs.append("moves_left")
        if int8 and not isinstance(network.body, AttentionBody):
            raise BackendError("int8 is for networks with an attention body; open this one without it")
        self._session: ort.InferenceSession | None = self._open(network, int8=False)
        if int8:
            probe = probe_batch(64)
            exact = self._run(probe)
            self._session = self._open(network, int8=True)
            self.quantisation_error = _check_quantised(exact, self._run(probe))
            self.device += ", int8"

    def _open(self, network: NetworkSpec, *, int8: bool) -> ort.InferenceSession:
        try:
            return ort.InferenceSession(
                build_model(network, packed=True, int8=int8).SerializeToString(),
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


def _check_quantised(exact: list[Any], quantised: list[Any]) -> QuantisationError:
    error = QuantisationError(
        logits=float(np.sqrt(np.square(quantised[0] - exact[0]).mean()) / exact[0].std()),
        value=float(np.abs(quantised[1] - exact[1]).max()),
    )
    if not (error.logits <= MAX_LOGITS_ERROR and error.value <= MAX_VALUE_ERROR):
        raise BackendError(
            f"int8 changes this network too much (logits by {error.logits:.1%} of their spread, "
            f"value by up to "
            f"{error.value:.3f}; {MAX_LOGITS_ERROR:.0%} and {MAX_VALUE_ERROR} are allowed); open it "
            f"without int8"
        )
    _log.info(
        "int8 changes logits by %.1f%% of their spread, value by up to %.3f", 100 * error.logits, error.value
    )
    return error


def _session_options(threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Between operators a waiting thread spins for a moment and then sleeps. Without the limit (the default)
    # it spins until work comes, which on a machine that is busy with anything else starves the thread that
    # has the work: measured at batch 32 beside other load, 850 to 1,550 positions/s with the limit, 470
    # without.
    options.add_session_config_entry("session.intra_op.spin_duration_us", "20")
    options.add_session_config_entry("session.force_spinning_stop", "1")  # and not at all between batches
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return options

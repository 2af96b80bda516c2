# SPDX-License-Identifier: GPL-3.0-or-later
"""Spans of the evaluate requests for an OpenTelemetry collector. Off by default; see the extra `tracing`."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from evaluator.devices.runners import now_ms
from evaluator.scheduling.requests import Request
from protocol.common.extras import install
from protocol.errors import RemoteError
from protocol.wire.messages import PRIORITIES

EXPORT_S = 2.0
"""Time limit of a call of the collector. A service that ends waits no longer for one that does not answer."""


class Tracing:
    """Sends spans to a collector from a thread of its own, which drops them if it falls behind.

    url: of the collector, for OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces. instance: random name
    of this run of the service. Raises ValueError for another URL, or if OpenTelemetry is not installed.
    """

    def __init__(self, url: str, instance: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"--trace-to: {url!r} is no URL such as http://127.0.0.1:4318/v1/traces")
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise ValueError(f"--trace-to: {error}: {install('tracing')}") from None
        self._trace = trace
        resource = Resource.create({"service.name": "wavefront-evaluator", "service.instance.id": instance})
        self._provider = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("evaluator")

    def ended(self, request: Request, client: str, network: str, error: RemoteError | None) -> None:
        """Send the spans of a request that is answered now: `evaluate`, and in it `queue` and `compute`, as
        far as it came. client: as the log names it. error: the answer, unless that is a result."""
        trace, tracer = self._trace, self._tracer
        epoch_ns = time.time_ns() - int(now_ms() * 1e6)

        def at(time_ms: float) -> int:
            return epoch_ns + int(time_ms * 1e6)

        span = tracer.start_span(
            "evaluate",
            kind=trace.SpanKind.SERVER,
            start_time=at(request.arrived_ms),
            attributes={
                "client": client,
                "request": request.id,
                "network": network,
                "class": PRIORITIES[request.rank],
                "positions": request.count,
                "largest_batch": request.largest_batch,
            },
        )
        launched = request.launched_ms
        if launched >= 0:
            within = trace.set_span_in_context(span)
            tracer.start_span("queue", within, start_time=at(request.arrived_ms)).end(at(launched))
            tracer.start_span("compute", within, start_time=at(launched)).end(
                at(launched + request.compute_ms)
            )
        if error is not None:
            span.set_status(trace.StatusCode.ERROR, f"{error.code}: {error.message}")
        span.end()

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

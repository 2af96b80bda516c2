# SPDX-License-Identifier: GPL-3.0-or-later
"""Spans of requests, as a collector gets them."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from evaluator.service.tracing import Tracing
from protocol.errors import DeviceFailed
from tests.evaluator.service.echo import numbered_batch
from tests.evaluator.service.harness import running


@contextmanager
def collector(spans: list[Any]) -> Iterator[str]:
    """Runs a collector that appends each span to a list. Yields its URL."""
    trace = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="needs the extra tracing"
    )

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in trace.ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        finally:
            server.shutdown()
            thread.join()


def test_collector_gets_the_spans_of_each_request(tmp_path: Path) -> None:
    spans: list[Any] = []
    with collector(spans) as url, running(tmp_path, trace_to=url) as harness:
        harness.client().evaluate(numbered_batch(5))
        harness.backend.answer = lambda batch: 1 / 0  # type: ignore[assignment,return-value]
        with pytest.raises(DeviceFailed):
            harness.client().evaluate(numbered_batch(3))
    whole = [span for span in spans if span.name == "evaluate"]
    facts = [{each.key: each.value for each in span.attributes} for span in whole]
    assert [fact["positions"].int_value for fact in facts] == [5, 3]
    assert all(fact["network"].string_value == "echo" and fact["client"].string_value for fact in facts)
    assert [span.status.code for span in whole] == [0, 2]
    parts = [span for span in spans if span.parent_span_id == whole[0].span_id]
    assert [span.name for span in parts] == ["queue", "compute"]
    assert whole[0].start_time_unix_nano == parts[0].start_time_unix_nano
    assert parts[1].end_time_unix_nano <= whole[0].end_time_unix_nano


@pytest.mark.parametrize("url", ["collector:4318", "ftp://a/b", "http://"])
def test_url_is_refused_when_it_is_none_of_http(url: str) -> None:
    with pytest.raises(ValueError, match="trace-to"):
        Tracing(url, "1")

# SPDX-License-Identifier: GPL-3.0-or-later
"""The log names who changes the service, and whose request is refused."""

import logging
from pathlib import Path

import pytest

from protocol.errors import BadRequest, LoadFailed, UnknownNetwork
from tests.evaluator.service.echo import numbered_batch
from tests.evaluator.service.harness import serving


def test_log_names_the_client_of_each_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "evaluator.service")
    with serving(tmp_path, networks=2) as (_, client):
        client.alias("best", "echo-2")
        with pytest.raises(LoadFailed):
            client.load("/nowhere")
        client.clients()
        client.reload("echo")
        client.alias("best", "")
        client.unload("echo-2")
    asked = [record for record in caplog.records if hasattr(record, "request")]
    said = [record.getMessage().split(" asks for ")[1].split()[0] for record in asked]
    assert said == ["alias", "load", "reload", "alias", "unload"]
    assert all(vars(record)["client"] for record in asked)
    assert len({vars(record)["request"] for record in asked}) == 5
    done = {"alias best means echo-2", "alias best is gone", "network echo-2 is unloaded"}
    assert done <= {*caplog.messages}
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("no network was loaded: ") and "/nowhere" in warning


def test_log_names_client_and_request_if_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "evaluator.service")
    with serving(tmp_path) as (_, client):
        client.evaluate(numbered_batch(1))
        identity = client.submit(numbered_batch(1), network="nowhere")
        answer = client.receive()
    assert answer is not None and isinstance(answer.error, UnknownNetwork)
    refused = [vars(record) for record in caplog.records if hasattr(record, "request")]
    assert [entry["request"] for entry in refused] == [identity]
    assert refused[0]["client"]


def test_alias_is_refused_when_it_cannot_be_printed(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, client):
        with pytest.raises(BadRequest, match=r"a\?b"):
            client.alias("a\nb", "echo")
        assert not client.status().aliases.get("a\nb")

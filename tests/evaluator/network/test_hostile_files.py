# SPDX-License-Identifier: GPL-3.0-or-later
"""Network files that would make the parser allocate many times their size."""

import gzip
from pathlib import Path

import pytest

from evaluator.network import container
from evaluator.network.errors import NetworkError
from evaluator.network.schema import MAGIC, new_message


def serialised() -> bytes:
    net = new_message("Net")
    net.magic = MAGIC
    net.min_version.major = 0
    net.min_version.minor = 33
    net.weights.input.weights.params = bytes(64)
    data: bytes = net.SerializeToString()
    return data


@pytest.mark.parametrize("field", ["weights", "format", "min_version", "training_params"])
def test_file_is_refused_when_it_has_endless_empty_messages(tmp_path: Path, field: str) -> None:
    descriptor = new_message("Net").DESCRIPTOR.fields_by_name[field]
    empty = bytes([descriptor.number << 3 | 2, 0])
    path = tmp_path / "net.pb.gz"
    path.write_bytes(gzip.compress(serialised() + empty * container.MAX_FIELDS, 1))
    with pytest.raises(NetworkError, match=f"{container.MAX_FIELDS:,} fields"):
        container.read_container(path)


def test_messages_are_counted_at_any_depth(tmp_path: Path) -> None:
    residual = new_message("Weights").DESCRIPTOR.fields_by_name["residual"].number
    weights = bytes([residual << 3 | 2, 0]) * container.MAX_FIELDS
    net = new_message("Net").DESCRIPTOR.fields_by_name["weights"].number
    size = len(weights)
    length = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14])
    path = tmp_path / "net.pb.gz"
    path.write_bytes(gzip.compress(serialised() + bytes([net << 3 | 2]) + length + weights, 1))
    with pytest.raises(NetworkError, match="fields"):
        container.read_container(path)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever is wrong with a file, loading it gives one clear NetworkError that names the field."""

import dataclasses
import gzip
import math
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.network import NetworkError, load_network
from evaluator.network.container import MAX_BYTES, SizeLimit
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.schema import Message, PolicyFormat, WeightsEncoding
from evaluator.network.tensors import encode_layer
from evaluator.network.writer import network_message
from tests.rounds import rounds

SMALL = NetworkShape(16, layers=2, heads=2, ffn=24, smolgen=(2, 8, 4), policy_width=8, value_channels=4)
RESNET = NetworkShape(16, blocks=2, se=4, policy=PolicyFormat.CONVOLUTION, value_channels=4)


def error_of(path: Path, **arguments: object) -> str:
    with pytest.raises(NetworkError) as caught:
        load_network(path, **arguments)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def error_after(shape: NetworkShape, change: Callable[[Message], object], folder: Path) -> str:
    net = network_message(random_network(shape))
    change(net)
    path = folder / "network.pb"
    path.write_bytes(net.SerializeToString())
    return error_of(path)


def set_layer(layer: Message, count: int) -> None:
    encode_layer(layer, np.linspace(-1, 1, count, dtype=np.float32), WeightsEncoding.LINEAR16)


# --- the file as a whole ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"hello, this is no network", "not an lc0 network"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"\x1f\x8b", "truncated"),
        (b"\x1f\x8b\x08garbage that is not deflate", "gzip data is damaged|truncated"),
        (gzip.compress(b"", mtime=0), "not an lc0 network"),
        (gzip.compress(b"\0" * 100, mtime=0), "not an lc0 network"),
        (b"\x0d\xff\0\0\0", "magic: 0xff, expected 0x1c0"),
        (b"\x0d\xc0\x01\0\0", "weights: missing"),
    ],
)
def test_files_that_are_no_networks(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pb.gz"
    path.write_bytes(content)
    assert re.search(message, error_of(path))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert "no such file" in error_of(tmp_path / "nothing.pb.gz")
    assert "folder" in error_of(tmp_path)
    assert "cannot be read" in error_of(Path("a\0b"))


def test_truncation_anywhere(tmp_path: Path) -> None:
    whole = gzip.compress(network_message(random_network(SMALL)).SerializeToString(), 1)
    path = tmp_path / "x.pb.gz"
    for part in (0.1, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(len(whole) * part)])
        assert "truncated" in error_of(path)


@pytest.mark.parametrize(("size", "members"), [(8 << 20, 1), (1 << 20, 64)])
def test_a_gzip_bomb_is_stopped_early(tmp_path: Path, size: int, members: int) -> None:
    path = tmp_path / "bomb.pb.gz"
    path.write_bytes(gzip.compress(bytes(size), 9) * members)
    assert "unpacks to more than" in error_of(path, limits=SizeLimit(base=1 << 20, ratio=2))


def test_default_limits_leave_room_for_real_networks() -> None:
    assert SizeLimit().of(8 << 20) >= 4 * (8 << 20)
    assert SizeLimit().of(1 << 40) == MAX_BYTES


def test_oversized_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.pb"
    path.write_bytes(bytes(2000))
    assert "no lc0 network is larger" in error_of(path, limits=SizeLimit(maximum=1000))


# --- version ------------------------------------------------------------------------------------------------


def with_version(major: int, minor: int, patch: int) -> Callable[[Message], None]:
    def change(net: Message) -> None:
        net.min_version.major, net.min_version.minor, net.min_version.patch = major, minor, patch

    return change


def test_a_network_for_a_newer_lc0(tmp_path: Path) -> None:
    message = error_after(SMALL, with_version(0, 34, 1), tmp_path)
    assert "min_version: the network needs lc0 0.34.1" in message


def test_version_97_98_99_is_always_accepted(tmp_path: Path) -> None:
    net = network_message(random_network(SMALL))
    with_version(97, 98, 99)(net)
    path = tmp_path / "x.pb"
    path.write_bytes(net.SerializeToString())
    assert load_network(path).info.min_version == (97, 98, 99)


def test_other_encodings_need_version_33(tmp_path: Path) -> None:
    def change(net: Message) -> None:
        net.format.ClearField("weights_encoding")

    assert "format.weights_encoding: absent" in error_after(SMALL, change, tmp_path)


# --- fields -------------------------------------------------------------------------------------------------


def clear(path: str) -> Callable[[Message], None]:
    """Remove a field, e.g. "encoder[1].mha.q_w"."""

    def change(net: Message) -> None:
        message = net.weights
        *parents, last = path.split(".")
        for name in parents:
            field, _, index = name.partition("[")
            message = getattr(message, field)
            message = message[int(index[:-1])] if index else message
        message.ClearField(last)

    return change


@pytest.mark.parametrize(
    "field",
    [
        "ip_emb_w",
        "ip_emb_b",
        "encoder[1].mha.q_w",
        "encoder[1].mha.dense_b",
        "encoder[0].mha.smolgen.compress",
        "encoder[0].mha.smolgen.ln1_gammas",
        "encoder[0].ln2_betas",
        "encoder[1].ffn.dense2_w",
        "smolgen_w",
        "ip2_pol_w",
        "ip4_pol_w",
        "ip1_val_w",
        "ip2_mov_b",
    ],
)
def test_a_missing_array_is_named(field: str, tmp_path: Path) -> None:
    assert f"weights.{field}: missing" in error_after(SMALL, clear(field), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda net: set_layer(net.weights.encoder[1].mha.q_w, 100),
            "weights.encoder[1].mha.q_w: 100 values, expected 256 (16 x 16)",
        ),
        (lambda net: set_layer(net.weights.encoder[0].ln1_gammas, 15), "ln1_gammas: 15 values, expected 16"),
        (
            lambda net: set_layer(net.weights.smolgen_w, 4096 * 5),
            "weights.smolgen_w: 20480 values, expected 16384 (4096 x 4)",
        ),
        (lambda net: set_layer(net.weights.ip_mult_gate, 7), "ip_mult_gate: 7 values, expected 1024"),
        (lambda net: setattr(net.weights, "headcount", 0), "weights.headcount: missing or 0"),
        (lambda net: setattr(net.weights, "headcount", 3), "weights.headcount: 3 heads do not divide"),
        (lambda net: net.weights.ClearField("encoder"), "weights.encoder: missing"),
        (lambda net: set_layer(net.weights.encoder[0].mha.rpe_q, 4), "rpe_q: relative position"),
        (lambda net: setattr(net.weights.ip_emb_w, "params", b"123"), "ip_emb_w: 3 bytes are not a whole"),
        (lambda net: setattr(net.weights.ip_emb_w, "encoding", 9), "ip_emb_w: unknown encoding 9"),
        (lambda net: setattr(net.weights.ip_emb_w, "max_val", math.inf), "ip_emb_w: its range"),
        (lambda net: setattr(net.weights.ip_emb_b, "min_val", math.nan), "ip_emb_b: its range"),
    ],
)
def test_wrong_arrays_are_named(change: Callable[[Message], object], message: str, tmp_path: Path) -> None:
    assert message in error_after(SMALL, change, tmp_path)


@pytest.mark.parametrize("encoding", ["FLOAT16", "BFLOAT16", "FLOAT32"])
def test_values_that_are_not_finite_are_named(encoding: str, tmp_path: Path) -> None:
    def change(net: Message) -> None:
        layer = net.weights.encoder[0].mha.v_b
        encode_layer(layer, np.array([1, np.inf] * 8, np.float32), WeightsEncoding[encoding])

    assert "weights.encoder[0].mha.v_b: 8 of 16 values are not finite" in error_after(SMALL, change, tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("input", 77, "input: 77 is not supported"),
        ("network", 5, "network: 5 (ONNX) is not supported"),
        ("network", 99, "network: 99 is not supported"),
        ("policy", 9, "policy: 9 is not supported"),
        ("policy", 2, "policy: 2 CONVOLUTION cannot follow an attention body"),
        ("value", 3, "value: 3 is not supported"),
        ("value", 1, "weights.ip2_val_b: 3 values, expected 1"),
        ("moves_left", 2, "moves_left: 2 is not supported"),
        ("default_activation", 2, "default_activation: 2 is unknown"),
        ("ffn_activation", 9, "ffn_activation: 9 is not supported"),
        ("smolgen_activation", 12, "smolgen_activation: 12 is not supported"),
        ("input_embedding", 2, "weights.ip_emb_preproc_b: missing"),
        ("input_embedding", 3, "input_embedding: 3 is not supported"),
    ],
)
def test_unsupported_formats_are_named(field: str, value: int, message: str, tmp_path: Path) -> None:
    def change(net: Message) -> None:
        setattr(net.format.network_format, field, value)

    assert message in error_after(SMALL, change, tmp_path)


def test_an_embedded_onnx_model_is_refused(tmp_path: Path) -> None:
    def change(net: Message) -> None:
        net.ClearField("weights")
        net.onnx_model.model = b"model"

    assert "onnx_model: the file wraps an ONNX model" in error_after(SMALL, change, tmp_path)


def set_batch_norm(net: Message) -> None:
    for field in ("bn_means", "bn_stddivs"):
        set_layer(getattr(net.weights.input, field), 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (clear("input"), "weights.input: missing"),
        (clear("residual[1].conv2"), "weights.residual[1].conv2: missing"),
        (clear("policy1"), "weights.policy1: missing"),
        (clear("value.weights"), "weights.value.weights: missing"),
        (lambda net: set_layer(net.weights.residual[0].se.w2, 5), "weights.residual[0].se.w2: 5 values"),
        (lambda net: set_layer(net.weights.input.bn_stddivs, 16), "weights.input.bn_means: missing"),
        (set_batch_norm, "weights.input.bn_stddivs: a variance is negative"),
        (
            lambda net: net.weights.policy.CopyFrom(net.weights.policy1),
            "weights.policy: 16 planes, expected at least 73",
        ),
    ],
)
def test_damaged_residual_networks(change: Callable[[Message], object], message: str, tmp_path: Path) -> None:
    assert message in error_after(RESNET, change, tmp_path)


# --- fuzzing ------------------------------------------------------------------------------------------------

RAW = [
    network_message(random_network(shape)).SerializeToString()
    for shape in (SMALL, RESNET, dataclasses.replace(SMALL, multihead=True, dense_embedding=2))
]


def loads_or_says_why(data: bytes, folder: Path) -> None:
    """Both are fine; any other exception fails the test."""
    path = folder / "fuzzed.pb.gz"
    path.write_bytes(data)
    try:
        load_network(path)
    except NetworkError as error:
        assert str(error)


@settings(max_examples=rounds(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2), st.integers(0, 2**32), st.integers(1, 40))
def test_changed_bytes_never_crash_the_loader(tmp_path: Path, which: int, seed: int, changes: int) -> None:
    """Half of the changes hit the tags and lengths in front of the arrays, the rest any byte."""
    rng, data = random.Random(seed), bytearray(RAW[which])
    for _ in range(changes):
        place = rng.randrange(60) if rng.random() < 0.2 else rng.randrange(len(data))
        data[place] = rng.randrange(256)
    loads_or_says_why(bytes(data), tmp_path)


@settings(max_examples=rounds(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2), st.integers(0, 2**32))
def test_cut_and_shuffled_files_never_crash_the_loader(tmp_path: Path, which: int, seed: int) -> None:
    rng, data = random.Random(seed), RAW[which]
    start, end = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    pieces = [data[:start], data[start:end], data[end:]]
    rng.shuffle(pieces)
    raw = b"".join(pieces[: rng.randint(1, 3)])
    loads_or_says_why(gzip.compress(raw, 0) if rng.random() < 0.5 else raw, tmp_path)


@settings(max_examples=rounds(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_crash_the_loader(tmp_path: Path, data: bytes) -> None:
    loads_or_says_why(data, tmp_path)
    loads_or_says_why(b"\x0d\xc0\x01\0\0" + data, tmp_path)
    loads_or_says_why(b"\x1f\x8b\x08\0" + data, tmp_path)

# SPDX-License-Identifier: GPL-3.0-or-later
"""Loading networks: what is read, repaired, chosen and folded."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluator.backends.reference.backend import forward
from evaluator.network import SHIPPED_NETWORK, NetworkError, NetworkSpec, load_network, network_file
from evaluator.network.random_network import SHAPES, NetworkShape, random_network
from evaluator.network.schema import InputEmbedding, Message, PolicyFormat, Structure, WeightsEncoding
from evaluator.network.spec import Activation, AttentionBody, ClassicalPolicyHead, ResidualTower
from evaluator.network.tensors import decode_layer, encode_layer
from evaluator.network.writer import network_message, write_network

NUMBERED = ["mish", "relu", "none", "tanh", "sigmoid", "selu", "swish", "relu_squared"]
SMALL = NetworkShape(16, layers=1, heads=2, ffn=24, smolgen=(2, 8, 4), policy_width=8, value_channels=4)


def written(net: Message, folder: Path) -> Path:
    path = folder / "network.pb"
    path.write_bytes(net.SerializeToString())
    return path


def leaves(part: object) -> list[np.ndarray]:
    """Every array of a spec, in order."""
    if isinstance(part, np.ndarray):
        return [part]
    if isinstance(part, tuple):
        return [array for item in part for array in leaves(item)]
    if dataclasses.is_dataclass(part):
        return [array for field in dataclasses.fields(part) for array in leaves(getattr(part, field.name))]
    return []


def attention_body(network: NetworkSpec) -> AttentionBody:
    assert isinstance(network.body, AttentionBody)
    return network.body


def assert_same(loaded: NetworkSpec, original: NetworkSpec, tolerance: float = 0.0) -> None:
    parts = ("body", "policy", "value", "moves_left")
    for name in parts:
        ours, theirs = leaves(getattr(loaded, name)), leaves(getattr(original, name))
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape
            assert np.abs(a - b).max() <= tolerance * max(1.0, float(np.abs(b).max()))


@pytest.mark.integration
@pytest.mark.parametrize(
    "shape",
    [
        SMALL,
        SHAPES["tiny-resnet"],
        dataclasses.replace(SMALL, dense_embedding=4),
        dataclasses.replace(SMALL, multihead=True, dense_embedding=4),
        dataclasses.replace(SMALL, blocks=1, se=4),
        dataclasses.replace(SMALL, policy_layers=1, gating=False, wdl=False, moves_left=False),
        NetworkShape(16, blocks=1, policy=PolicyFormat.CLASSICAL),
    ],
    ids=["attention", "resnet", "dense", "multihead", "tower", "policy-encoder", "classical-policy"],
)
def test_written_network_is_read_back(shape: NetworkShape, tmp_path: Path) -> None:
    network = random_network(shape)
    write_network(network, tmp_path / "n.pb.gz", encodings=(WeightsEncoding.FLOAT32,))
    loaded = load_network(tmp_path / "n.pb.gz")
    assert_same(loaded, network)
    assert loaded.name == "n"
    assert loaded.input_format == network.input_format
    assert loaded.info.structure == network.info.structure


@pytest.mark.parametrize(
    ("encoding", "tolerance"), [("LINEAR16", 2e-5), ("FLOAT16", 1e-3), ("BFLOAT16", 8e-3), ("FLOAT32", 0.0)]
)
def test_every_weight_encoding(encoding: str, tolerance: float, tmp_path: Path) -> None:
    network = random_network(SMALL)
    write_network(network, tmp_path / "n.pb.gz", encodings=(WeightsEncoding[encoding],))
    loaded = load_network(tmp_path / "n.pb.gz")
    assert_same(loaded, network, tolerance)
    assert loaded.info.encodings == (encoding,)


def test_encodings_may_be_mixed(tmp_path: Path) -> None:
    write_network(random_network(SMALL), tmp_path / "n.pb.gz", encodings=tuple(WeightsEncoding))
    assert len(load_network(tmp_path / "n.pb.gz").info.encodings) == 4


def test_linear16_spans_its_range() -> None:
    layer = network_message(random_network(SMALL)).weights.ip_emb_b
    layer.min_val, layer.max_val, layer.params = -2.0, 6.0, b"\0\0\xff\xff\xff\x7f"
    values = decode_layer(layer, "x")
    assert values[:2].tolist() == [-2.0, 6.0]
    assert abs(values[2] - (-2 + 8 * 32767 / 65535)) < 1e-6


def test_file_precedes_a_shipped_network_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert network_file("wavefront-cpu") == network_file("shipped") == SHIPPED_NETWORK
    Path("wavefront-cpu").write_bytes(b"")
    assert network_file("wavefront-cpu") == Path("wavefront-cpu")


@pytest.mark.parametrize(("name", "layers", "width"), [("wavefront-cpu", 8, 128), ("wavefront-gpu", 10, 256)])
def test_the_shipped_networks_are_what_their_description_says(name: str, layers: int, width: int) -> None:
    network = load_network(name)
    body = attention_body(network)
    assert (len(body.encoders), len(body.embedding.biases)) == (layers, width)
    assert body.position is InputEmbedding.PE_DENSE
    assert (network.policy_heads, network.value_heads) == (("vanilla",), ("winner",))


def test_batch_norm_is_folded(tmp_path: Path) -> None:
    """A tower whose batch norm undoes itself computes what the plain tower computes."""
    network = random_network(SHAPES["tiny-resnet"], seed=4)
    net = network_message(network, encodings=(WeightsEncoding.FLOAT32,))
    rng = np.random.default_rng(0)
    blocks = [net.weights.input, *(c for r in net.weights.residual for c in (r.conv1, r.conv2))]
    for block in blocks:
        weights, biases = decode_layer(block.weights, "w"), decode_layer(block.biases, "b")
        channels = len(biases)
        variance = rng.uniform(0.5, 2, channels).astype(np.float32)
        gammas, mean, betas = rng.normal(1, 0.2, (3, channels)).astype(np.float32)
        scale = gammas / np.sqrt(variance + 1e-5)
        plain = (weights.reshape(channels, -1) / scale[:, None]).astype(np.float32)
        for field, values in {
            "weights": plain,
            "biases": (biases - betas) / scale + mean,
            "bn_means": mean,
            "bn_stddivs": variance,
            "bn_gammas": gammas,
            "bn_betas": betas,
        }.items():
            encode_layer(getattr(block, field), values, WeightsEncoding.FLOAT32)
    assert_same(load_network(written(net, tmp_path)), network, 1e-5)


def test_batch_norm_without_gammas_betas_and_biases(tmp_path: Path) -> None:
    net = network_message(random_network(SHAPES["tiny-resnet"]), encodings=(WeightsEncoding.FLOAT32,))
    block = net.weights.input
    weights = decode_layer(block.weights, "w").reshape(16, 112, 3, 3)
    block.ClearField("biases")
    encode_layer(block.bn_means, np.full(16, 3, np.float32), WeightsEncoding.FLOAT32)
    encode_layer(block.bn_stddivs, np.full(16, 4 - 1e-5, np.float32), WeightsEncoding.FLOAT32)
    body = load_network(written(net, tmp_path)).body
    assert isinstance(body, ResidualTower)
    assert np.abs(body.input.weights - weights / 2).max() < 1e-6
    assert np.abs(body.input.biases + 1.5).max() < 1e-6


# --- repairs of older files ---------------------------------------------------------------------------------


def repaired(shape: NetworkShape, change: Callable[[Message], None], folder: Path) -> NetworkSpec:
    net = network_message(random_network(shape))
    change(net)
    network = load_network(written(net, folder))
    assert network.info.repairs
    return network


def test_no_network_format_is_classical(tmp_path: Path) -> None:
    shape = NetworkShape(
        16, blocks=1, policy=PolicyFormat.CLASSICAL, wdl=False, moves_left=False, activation=Activation.RELU
    )
    network = repaired(shape, lambda net: net.format.ClearField("network_format"), tmp_path)
    assert isinstance(network.policy, ClassicalPolicyHead)
    assert network.info.structure is Structure.CLASSICAL_WITH_HEADS
    assert network.input_format.value == 1


@pytest.mark.parametrize(("old", "new"), [(1, 3), (2, 4)])
def test_networks_1_and_2_have_classical_heads(old: int, new: int, tmp_path: Path) -> None:
    def change(net: Message) -> None:
        header = net.format.network_format
        header.network = old
        header.ClearField("policy")
        header.ClearField("value")

    shape = NetworkShape(16, blocks=1, se=4, policy=PolicyFormat.CLASSICAL, wdl=False)
    network = repaired(shape, change, tmp_path)
    assert network.info.structure.value == new
    assert network.policy_format is PolicyFormat.CLASSICAL


@pytest.mark.parametrize("smolgen", [(2, 8, 4), None])
def test_network_4_with_encoders_is_6(smolgen: tuple[int, int, int] | None, tmp_path: Path) -> None:
    def change(net: Message) -> None:
        header = net.format.network_format
        header.network = 4
        for field in ("ffn_activation", "smolgen_activation", "input_embedding"):
            header.ClearField(field)

    network = repaired(dataclasses.replace(SMALL, smolgen=smolgen), change, tmp_path)
    assert network.info.structure is Structure.ATTENTION_BODY
    assert attention_body(network).position is InputEmbedding.PE_MAP
    layer = attention_body(network).encoders[0]
    expected = Activation.RELU_SQUARED if smolgen else Activation.MISH
    assert layer.ffn.dense1.activation is expected
    if layer.attention.smolgen is not None:
        assert layer.attention.smolgen.dense1.activation is Activation.SWISH


@pytest.mark.parametrize("number", [6, 134])
def test_network_6_with_both_heads_and_134_are_7_with_dense_embedding(number: int, tmp_path: Path) -> None:
    def change(net: Message) -> None:
        net.format.network_format.network = number
        if number == 6:
            net.format.network_format.ClearField("input_embedding")

    network = repaired(dataclasses.replace(SMALL, multihead=True, dense_embedding=4), change, tmp_path)
    assert network.info.structure is Structure.ATTENTION_BODY_MULTIHEAD
    assert attention_body(network).position is InputEmbedding.PE_DENSE


def test_network_6_without_input_embedding_is_pe_map(tmp_path: Path) -> None:
    def change(net: Message) -> None:
        net.format.network_format.ClearField("input_embedding")

    network = repaired(SMALL, change, tmp_path)
    assert attention_body(network).position is InputEmbedding.PE_MAP


@pytest.mark.parametrize(("number", "activation"), list(enumerate(NUMBERED, 1)))
def test_activation_numbers(number: int, activation: str, tmp_path: Path) -> None:
    net = network_message(random_network(SMALL))
    net.format.network_format.ffn_activation = number
    body = attention_body(load_network(written(net, tmp_path)))
    assert body.encoders[0].ffn.dense1.activation.value == activation


def test_attention_constants_follow_the_embedding(tmp_path: Path) -> None:
    def body(shape: NetworkShape) -> AttentionBody:
        return attention_body(load_network(written(network_message(random_network(shape)), tmp_path)))

    plain = body(dataclasses.replace(SMALL, layers=3))
    assert plain.encoders[0].norm1.epsilon == 1e-6
    assert plain.encoders[0].alpha == pytest.approx(6**-0.25)
    dense = body(dataclasses.replace(SMALL, dense_embedding=4))
    assert dense.encoders[0].norm1.epsilon == 1e-3


# --- heads --------------------------------------------------------------------------------------------------


@pytest.fixture
def multihead(tmp_path: Path) -> Path:
    shape = dataclasses.replace(SMALL, multihead=True, dense_embedding=4)
    networks = [random_network(shape, seed) for seed in range(3)]
    write_network(
        networks[0],
        tmp_path / "heads.pb.gz",
        encodings=(WeightsEncoding.FLOAT32,),
        policy_heads={name: net.policy for name, net in zip(("vanilla", "soft"), networks[:2], strict=True)},
        value_heads={name: net.value for name, net in zip(("winner", "q", "st"), networks, strict=True)},
    )
    return tmp_path / "heads.pb.gz"


def test_heads_are_chosen_by_name(multihead: Path) -> None:
    planes = np.random.default_rng(0).integers(0, 2, (2, 112, 64)).astype(np.float32)
    outputs = {
        (policy, value): forward(load_network(multihead, policy_head=policy, value_head=value), planes)
        for policy, value in ((None, None), ("vanilla", "winner"), ("soft", "st"))
    }
    default, named, other = outputs.values()
    assert np.array_equal(default.policy, named.policy)
    assert np.array_equal(default.value, named.value)
    assert np.abs(other.policy - named.policy).max() > 0.01
    assert np.abs(other.value - named.value).max() > 0.001


def test_all_heads_are_listed(multihead: Path) -> None:
    network = load_network(multihead, policy_head="soft", value_head="q")
    assert network.policy_heads == ("vanilla", "soft")
    assert network.value_heads == ("winner", "q", "st")
    assert (network.policy_head, network.value_head) == ("soft", "q")


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({"policy_head": "optimistic"}, "no policy head 'optimistic' in the file; it has vanilla, soft"),
        ({"value_head": "vanilla"}, "no value head 'vanilla' in the file; it has winner, q, st"),
    ],
)
def test_unknown_head_is_error_that_lists_known(multihead: Path, heads: dict[str, Any], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        load_network(multihead, **heads)


def test_equal_arguments_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_network(random_network(SMALL, seed=5), tmp_path / f"{name}.pb.gz")
    assert (tmp_path / "a.pb.gz").read_bytes() == (tmp_path / "b.pb.gz").read_bytes()
    assert load_network(tmp_path / "a.pb.gz").content_hash == load_network(tmp_path / "b.pb.gz").content_hash

# SPDX-License-Identifier: GPL-3.0-or-later
"""A configuration of lc0's trainers becomes a run; every key that is not honoured is named, and why."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.training.run.runs import run_training
from training.config import train_config
from training.errors import TrainingError
from training.lc0_config.translate import translated

TEXT = """
name: "small"
data_loader {
  stage { name: "a" file_path_provider { directory: "/data/chunks" queue_capacity: 16 } }
  stage { chunk_rescorer { deblunder_threshold: 0.10 deblunder_width: 0.05 dist_temp: 1.5 } }
  stage { chunk_unpacker { position_sampling_rate: 0.03 } }
  stage { tensor_generator { batch_size: 1024 } }
}
model {
  defaults { compute_dtype: BF16 activation: ACTIVATION_MISH ffn_activation: ACTIVATION_RELU_2 }
  embedding { dense_size: 64 embedding_size: 256 dff: 384 }
  encoder { num_blocks: 5 dff: 512 d_model: 256 heads: 8 smolgen { hidden_channels: 32 gen_size: 48 } }
  policy_head { embedding_size: 128 d_model: 192 }
}
training {
  optimizer { nadamw { beta_2: 0.97 epsilon: 1e-7 } }
  lr_schedule { lr: 0.0005 }
  max_grad_norm: 4.0
  swa { period_steps: 25 num_averages: 20 }
  losses {
    policy { head_name: "vanilla" weight: 1.5 illegal_moves: MASK type: KL }
    policy { head_name: "soft" weight: 8 temperature: 3.0 }
    policy { head_name: "optimistic_st" weight: 0.5 }
    value { head_name: "winner" weight: 0.7 }
    movesleft { name: "main" weight: 0.05 }
  }
}
"""
YAML = """
name: 'plain'
dataset:
    num_chunks: 120000
    input: '/chunks/*/'
training:
    batch_size: 512
    total_steps: 1000
    lr_values:
        - 0.2
        - 0.02
    policy_loss_weight: 1.0
    q_ratio: 0.25
    swa: true
    swa_steps: 25
    swa_max_n: 10
    mask_legal_moves: false
model:
    embedding_size: 64
    encoder_layers: 3
    encoder_heads: 4
    encoder_dff: 96
    encoder_d_model: 64
    policy_d_model: 32
    use_smolgen: false
    smolgen_hidden_channels: 8
    square_relu_ffn: true
    default_activation: 'relu'
    input_type: 'canonical_v2'
    moves_left: 'v1'
"""


def test_the_text_format_is_translated(tmp_path: Path) -> None:
    path = tmp_path / "root.textproto"
    path.write_text(TEXT, "utf-8")
    config, translation = translated(path)
    assert config.output == "runs/small"
    assert config.data.sampling == 0.03
    assert (config.targets.deblunder_threshold, config.targets.deblunder_width) == (0.10, 0.05)
    model = config.model
    assert (model.width, model.layers, model.heads, model.ffn, model.policy_width) == (256, 5, 8, 512, 192)
    assert (model.dense_embedding, model.smolgen_hidden, model.smolgen_gen) == (64, 32, 48)
    assert (model.activation, model.ffn_activation) == ("mish", "relu_squared")
    losses = config.losses
    assert (losses.policy, losses.soft_policy, losses.soft_temperature) == (1.5, 8, 3)
    assert (losses.value, losses.moves_left) == (0.7, 0.05)
    optimiser = config.optimiser
    assert (optimiser.batch, optimiser.adam_rate, optimiser.adam_beta2, optimiser.clip) == (
        1024,
        5e-4,
        0.97,
        4,
    )
    assert optimiser.ema == 1 - 1 / 500
    assert config.run.precision == "bf16"
    assert set(translation.refused) == {
        "data_loader.stage.file_path_provider.queue_capacity = 16",
        "data_loader.stage.chunk_rescorer.dist_temp = 1.5",
        "training.optimizer.nadamw.epsilon = 1e-07",
        "training.losses.policy[optimistic_st].weight = 0.5",
        "model.embedding.dff = 384",
        "model.policy_head.embedding_size = 128",
    }
    assert "import /data/chunks --output data/small" in translation.notes[-1]


def test_yaml_is_translated(tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(YAML, "utf-8")
    config, translation = translated(path)
    model = config.model
    assert (model.width, model.layers, model.heads, model.ffn, model.policy_width) == (64, 3, 4, 96, 32)
    assert (model.smolgen_hidden, model.dense_embedding, model.input_format) == (0, 0, "5")
    assert (model.activation, model.ffn_activation) == ("relu", "relu_squared")
    assert config.schedule.positions == 512_000
    assert config.schedule.minutes == 0
    assert config.targets.q_ratio == 0.25
    assert config.optimiser.ema == 1 - 1 / 250
    assert set(translation.refused) == {
        "dataset.num_chunks = 120000",
        "training.lr_values = [0.2, 0.02]",
        "training.mask_legal_moves = False",
    }


def test_init_writes_what_was_translated_and_says_what_was_not(tmp_path: Path) -> None:
    source = tmp_path / "root.textproto"
    source.write_text(TEXT, "utf-8")
    done = run_training("init", tmp_path / "run.toml", "--config", source, "--data", "data/mine")
    written = train_config(tomllib.loads((tmp_path / "run.toml").read_text("utf-8")), "run.toml")
    assert written.model == translated(source)[0].model
    assert written.data.main == ("data/mine",)
    assert "not honoured: training.optimizer.nadamw.epsilon = 1e-07: nothing here" in done.stderr


MODEL = "model:\n  embedding_size: 256\n  encoder_layers: 2\n  encoder_heads: 8\n"


@pytest.mark.parametrize(
    ("optimiser", "rates", "adam_rate"),
    [
        ("", "[0.02]", 0.0015),
        ("", "[0.001, 0.0001]", 0.0015),
        ("  new_optimizer: true\n", "0.01", 0.0015),
        ("  optimizer: sgd\n", "[0.005]", 0.0015),
        ("  optimizer: rmsprop\n", "[0.005]", 0.0015),
        ("  optimizer: Nadam\n", "[0.001, 0.0001]", 0.001),
    ],
)
def test_only_rates_of_adam_become_adamws(
    tmp_path: Path, optimiser: str, rates: str, adam_rate: float
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"training:\n  lr_values: {rates}\n{optimiser}{MODEL}", "utf-8")
    config, translation = translated(path)
    assert config.optimiser.adam_rate == adam_rate
    assert any(key.startswith("training.lr_values = ") for key in translation.refused)


@pytest.mark.parametrize(
    ("optimiser", "adam_rate"),
    [("nadamw { }", 0.0005), ("nadam { }", 0.0005), ("sgd { momentum: 0.9 }", 0.0015), ("", 0.0015)],
)
def test_rates_of_the_text_format_go_by_its_optimiser(
    tmp_path: Path, optimiser: str, adam_rate: float
) -> None:
    path = tmp_path / "a.textproto"
    path.write_text(f"training {{ lr_schedule {{ lr: 0.0005 }} optimizer {{ {optimiser} }} }}", "utf-8")
    assert translated(path)[0].optimiser.adam_rate == adam_rate


@pytest.mark.parametrize(
    ("keys", "activations"),
    [
        ("", ("relu", "relu", "swish")),
        ("  default_activation: mish\n", ("mish", "mish", "swish")),
        ("  default_activation: mish\n  square_relu_ffn: false\n", ("mish", "mish", "swish")),
        ("  default_activation: mish\n  square_relu_ffn: true\n", ("mish", "relu_squared", "swish")),
        ("  square_relu_ffn: true\n  smolgen_activation: relu\n", ("relu", "relu_squared", "relu")),
    ],
)
def test_absent_activations_are_lc0s(tmp_path: Path, keys: str, activations: tuple[str, ...]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(MODEL + keys, "utf-8")
    model = translated(path)[0].model
    assert (model.activation, model.ffn_activation, model.smolgen_activation) == activations


def test_absent_keys_have_lc0s_defaults_and_say_so(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"training:\n  batch_size: 512\n{MODEL}", "utf-8")
    config, translation = translated(path)
    model, losses = config.model, config.losses
    assert (model.ffn, model.policy_width, model.smolgen_hidden) == (384, 256, 0)
    assert (losses.soft_policy, losses.short_term, losses.value_error) == (0, 0, 0)
    assert config.targets.q_ratio == 0
    assert any("model.ffn = 384" in note for note in translation.notes)


def test_a_loss_without_a_head_in_the_text_format_is_off(tmp_path: Path) -> None:
    path = tmp_path / "a.textproto"
    path.write_text('training { losses { policy { head_name: "vanilla" weight: 1.5 } } }', "utf-8")
    losses = translated(path)[0].losses
    assert (losses.policy, losses.value, losses.moves_left, losses.soft_policy) == (1.5, 0, 0, 0)


def test_what_a_run_adds_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"training:\n  swa_steps: 25\n  swa_max_n: 10\n{MODEL}", "utf-8")
    added = translated(path)[1].added
    assert "[optimiser] muon_rate = 0.012" in added and "[data] mirror = 0.5" in added
    assert not any("ema" in setting for setting in added)
    done = run_training("init", tmp_path / "run.toml", "--config", path)
    assert "added: [optimiser] muon_rate = 0.012" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  residual_blocks: 10\n", "residual towers"),
        ("model:\n  embedding_size: 65\n", "is not supported: .*width 65"),
        ("model:\n  encoder_layers: many\n", "is not supported: .*layers"),
        ("a\n", "line 1: not understood"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(TrainingError, match=message):
        translated(path)

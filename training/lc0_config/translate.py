# SPDX-License-Identifier: GPL-3.0-or-later
"""Translates lc0's keys to ours. Keys without the same meaning here are reported with the reason.

Names of the text format come from lczero-training's proto/*.proto, names of YAML from its tf/tfprocess.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.settings.spec import SettingsError
from training.config import TrainConfig, train_config
from training.errors import TrainingError
from training.lc0_config.defaults import ADAMS, Format, absent, additions, optimiser_of
from training.lc0_config.document import YAML_SUFFIXES, read_document

ACTIVATIONS = {"mish", "relu", "swish", "relu_squared", "selu"}
INPUT_FORMATS = {
    "classic": "1",
    "frc_castling": "2",
    "canonical": "3",
    "canonical_100": "4",
    "canonical_v2": "5",
    "canonical_armageddon": "132",
    "canonical_v2_armageddon": "133",
}
PRECISIONS = {"f32": "fp32", "single": "fp32", "bf16": "bf16", "half": "bf16", "bfloat16": "bf16"}
NOTHING = "nothing here corresponds to it"
NO_PIPELINE = "all positions lie in memory: there is no pipeline of loaders"
NAMES = ("name", "head_name", "metric_name")
"""Name fields of messages in messages."""


@dataclass(slots=True)
class Translation:
    """Result of a translation. settings: by table and key. refused: ignored keys of lc0 with the reason.
    added: settings of a run that lc0's trainers lack. notes: further hints for the user."""

    settings: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def set(self, name: str, value: Any) -> None:
        """Store a setting. name: table.key, or a top-level key."""
        table, dot, key = name.partition(".")
        if dot:
            self.settings.setdefault(table, {})[key] = value
        else:
            self.settings[name] = value

    def get(self, name: str, otherwise: Any) -> Any:
        table, _, key = name.partition(".")
        return self.settings.get(table, {}).get(key, otherwise)


Rule = Callable[[Translation, Any], str]
"""Translates a value; returns the reason if that is impossible, else an empty text."""


def translated(path: Path) -> tuple[TrainConfig, Translation]:
    """Return the run that a configuration of lc0 describes, and the translation of its keys.

    Raises TrainingError.
    """
    document = read_document(path)
    found = Translation()
    found.set("schedule.minutes", 0.0)
    for name, value in _flat(document):
        rule = RULES.get(name)
        missing = NO_PIPELINE if name.startswith("data_loader.") else NOTHING
        why = missing if rule is None else rule(found, value)
        if why:
            found.refused[f"{name} = {value}"] = why
    kind: Format = "yaml" if path.suffix in YAML_SUFFIXES else "text"
    if kind == "yaml" and "model" in document and "use_smolgen" not in (document["model"] or {}):
        found.settings["_smolgen_off"] = True
    _finish_rates(found, document)
    defaults = absent(found.settings, document, kind)
    for name, value in defaults.items():
        found.set(name, value)
    if defaults:
        shown = ", ".join(f"{name} = {value}" for name, value in defaults.items())
        found.notes.append(f"absent keys have lc0's defaults: {shown}")
    _finish(found, document)
    try:
        config = train_config(found.settings, str(path))
    except SettingsError as error:
        raise TrainingError(f"{path} is not supported: {error}") from None
    found.added = additions(config, found.settings)
    return config, found


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield leaves by path. Repeated messages are distinguished by name, losses by their head."""
    for key, value in document.items():
        path = f"{prefix}{key}"
        messages = value if isinstance(value, list) else [value]
        if not all(isinstance(message, dict) for message in messages) or not messages:
            yield path, value
            continue
        for message in messages:
            head = message.get("head_name", message.get("name")) if ".losses." in f".{path}." else None
            named = f"{path}[{head}]." if isinstance(head, str) else f"{path}."
            yield from _flat({k: v for k, v in message.items() if k not in NAMES}, named)


def _finish(found: Translation, document: Mapping[str, Any]) -> None:
    """Translate keys that depend on each other."""
    batch = found.get("optimiser.batch", TrainConfig().optimiser.batch)
    steps = found.settings.pop("_steps", None)
    if steps:
        found.set("schedule.positions", steps * batch)
    period, most = found.settings.pop("_swa_period", 0), found.settings.pop("_swa_averages", 0)
    if period and most:
        found.set("optimiser.ema", min(0.999999, 1 - 1 / (period * most)))
        found.notes.append(
            f"the mean of {most} weights, {period} steps apart, becomes a moving mean of its length"
        )
    width = found.get("model.width", TrainConfig().model.width)
    for name, value in found.settings.pop("_as_width", {}).items():
        if value != width:
            found.refused[f"{name} = {value}"] = f"it is the embedding's width here, {width}"
    ffn = found.get("model.ffn", TrainConfig().model.ffn)
    for name, value in found.settings.pop("_as_ffn", {}).items():
        if value != ffn:
            found.refused[f"{name} = {value}"] = f"it is as wide as the encoders' here, {ffn}"
    if document.get("model", {}) and "smolgen_hidden" not in found.settings.get("model", {}):
        found.set("model.smolgen_hidden", 0)
    if found.settings.pop("_smolgen_off", False):
        found.set("model.smolgen_hidden", 0)
    if document.get("model", {}) and "dense_embedding" not in found.settings.get("model", {}):
        found.set("model.dense_embedding", 0)
    chunks = found.settings.pop("_chunks", [])
    name = found.settings.pop("_name", "lc0")
    found.set("output", f"runs/{name}")
    found.set("data.main", [f"data/{name}"])
    sources = " ".join(chunks) if chunks else "CHUNKS"
    found.notes.append(f"first: python -m training import {sources} --output data/{name}")
    found.set("targets.prior", "")
    found.set("targets.prior_refreshes", 0)


# --- rules --------------------------------------------------------------------------------------------------


def _to(name: str, change: Callable[[Any], Any] = lambda value: value) -> Rule:
    def rule(found: Translation, value: Any) -> str:
        try:
            found.set(name, change(value))
        except (TypeError, ValueError, KeyError):
            return f"{name} takes no such value"
        return ""

    return rule


def _activation(name: str) -> Rule:
    def rule(found: Translation, value: Any) -> str:
        text = str(value).lower().removeprefix("activation_").replace("square_relu", "relu_squared")
        text = "relu_squared" if text in ("relu_2", "sqrrelu") else text
        if text not in ACTIVATIONS:
            return f"of {', '.join(sorted(ACTIVATIONS))} none is that"
        found.set(name, text)
        return ""

    return rule


def _only(wanted: Any, reason: str) -> Rule:
    """Accept a key with one value only."""
    return lambda found, value: "" if value == wanted else reason


def _kept(name: str) -> Rule:
    """Store a value for `_finish`."""

    def rule(found: Translation, value: Any) -> str:
        found.settings[name] = value
        return ""

    return rule


def _same(group: str, name: str) -> Rule:
    """Store a size for `_finish`, which compares it with one of ours."""

    def rule(found: Translation, value: Any) -> str:
        found.settings.setdefault(group, {})[name] = value
        return ""

    return rule


def _rates(name: str) -> Rule:
    """Store rates for `_finish_rates`: their meaning depends on the optimiser, which may follow."""

    def rule(found: Translation, value: Any) -> str:
        try:
            rates = [float(rate) for rate in (value if isinstance(value, list) else [value])]
        except (TypeError, ValueError):
            return "optimiser.adam_rate takes no such value"
        found.settings.setdefault("_rates", {}).setdefault(name, []).extend(rates)
        return ""

    return rule


def _finish_rates(found: Translation, document: Mapping[str, Any]) -> None:
    """Convert rates of lc0's Adam to AdamW's. Rates of SGD have another scale and are refused."""
    given: dict[str, list[float]] = found.settings.pop("_rates", {})
    optimiser, ours = optimiser_of(document), TrainConfig().optimiser
    for name, rates in given.items():
        shown = f"{name} = {rates if len(rates) > 1 else rates[0]}"
        if optimiser not in ADAMS:
            found.refused[shown] = (
                f"rates of {optimiser.upper()}: AdamW keeps {ours.adam_rate:g}, Muon {ours.muon_rate:g}"
            )
            continue
        found.set("optimiser.adam_rate", max(rates))
        if len(rates) > 1:
            found.refused[shown] = (
                f"the highest is AdamW's, Muon keeps {ours.muon_rate:g}; they change by [schedule]"
            )


def _chunks(found: Translation, value: Any) -> str:
    found.settings.setdefault("_chunks", []).append(str(value))
    return ""


def _switch(found: Translation, value: Any) -> str:
    if not value:
        found.settings["_smolgen_off"] = True
    return ""


def _square_relu(found: Translation, value: Any) -> str:
    if value:
        found.set("model.ffn_activation", "relu_squared")
    return ""


def _no_tower(found: Translation, value: Any) -> str:
    if value:
        raise TrainingError("networks with residual towers cannot be trained here: take an attention body")
    return ""


def _policy_temperature(found: Translation, value: Any) -> str:
    if float(value) < 1:
        return "a soft policy's temperature is at least 1"
    found.set("losses.soft_temperature", float(value))
    return ""


FIXED = "its size is fixed here"
RULES: dict[str, Rule] = {
    "name": _kept("_name"),
    # Text format.
    "model.defaults.compute_dtype": _to("run.precision", lambda value: PRECISIONS[str(value).lower()]),
    "model.defaults.activation": _activation("model.activation"),
    "model.defaults.ffn_activation": _activation("model.ffn_activation"),
    "model.embedding.dense_size": _to("model.dense_embedding"),
    "model.embedding.embedding_size": _to("model.width"),
    "model.embedding.dff": _same("_as_ffn", "model.embedding.dff"),
    "model.encoder.num_blocks": _to("model.layers"),
    "model.encoder.dff": _to("model.ffn"),
    "model.encoder.d_model": _same("_as_width", "model.encoder.d_model"),
    "model.encoder.heads": _to("model.heads"),
    "model.encoder.smolgen.hidden_channels": _to("model.smolgen_hidden"),
    "model.encoder.smolgen.hidden_size": _to("model.smolgen_dense"),
    "model.encoder.smolgen.gen_size": _to("model.smolgen_gen"),
    "model.encoder.smolgen.activation": _activation("model.smolgen_activation"),
    "model.policy_head.embedding_size": _same("_as_width", "model.policy_head.embedding_size"),
    "model.policy_head.d_model": _to("model.policy_width"),
    "model.value_head.num_channels": _to("model.value_channels"),
    "model.value_head.embedding_size": _to("model.value_channels"),
    "model.movesleft_head.num_channels": _only(8, FIXED),
    "model.movesleft_head.embedding_size": _only(8, FIXED),
    "training.optimizer.nadamw.beta_1": _to("optimiser.adam_beta1"),
    "training.optimizer.nadamw.beta_2": _to("optimiser.adam_beta2"),
    "training.optimizer.nadamw.weight_decay": _to("optimiser.weight_decay"),
    "training.optimizer.nadamw.decay_biases": _only(False, "biases do not decay here"),
    "training.optimizer.nadamw.decay_layer_norms": _only(False, "norms do not decay here"),
    "training.optimizer.lr_schedule.lr": _rates("training.optimizer.lr_schedule.lr"),
    "training.lr_schedule.lr": _rates("training.lr_schedule.lr"),
    "training.swa.period_steps": _kept("_swa_period"),
    "training.swa.num_averages": _kept("_swa_averages"),
    "training.losses.policy[main].weight": _to("losses.policy"),
    "training.losses.policy[vanilla].weight": _to("losses.policy"),
    "training.losses.policy[main].illegal_moves": _only("MASK", "illegal moves have no share here"),
    "training.losses.policy[vanilla].illegal_moves": _only("MASK", "illegal moves have no share here"),
    "training.losses.policy[main].type": lambda found, value: "",
    "training.losses.policy[vanilla].type": lambda found, value: "",
    "training.losses.policy[main].temperature": _only(1.0, "the main policy is trained as it is"),
    "training.losses.policy[vanilla].temperature": _only(1.0, "the main policy is trained as it is"),
    "training.losses.policy[soft].weight": _to("losses.soft_policy"),
    "training.losses.policy[soft].temperature": _policy_temperature,
    "training.losses.policy[soft].illegal_moves": _only("MASK", "illegal moves have no share here"),
    "training.losses.policy[soft].type": lambda found, value: "",
    "training.losses.value[winner].weight": _to("losses.value"),
    "training.losses.value[st].weight": _to("losses.short_term"),
    "training.losses.movesleft[main].weight": _to("losses.moves_left"),
    "training.losses.value_error[winner].weight": _to("losses.value_error"),
    "data_loader.stage.file_path_provider.directory": _chunks,
    "data_loader.stage.chunk_rescorer.deblunder_threshold": _to("targets.deblunder_threshold"),
    "data_loader.stage.chunk_rescorer.deblunder_width": _to("targets.deblunder_width"),
    "data_loader.stage.chunk_rescorer.dist_temp": _only(1.0, "visits are taken as they are"),
    "data_loader.stage.chunk_rescorer.dist_offset": _only(0.0, "visits are taken as they are"),
    "data_loader.stage.chunk_rescorer.dtz_boost": _only(0.0, "distances change no policy"),
    "data_loader.stage.chunk_rescorer.new_input_format": _only(-1, "[model] input_format says it here"),
    "data_loader.stage.chunk_unpacker.position_sampling_rate": _to("data.sampling"),
    "data_loader.stage.shuffling_chunk_pool.chunk_pool_size": lambda found, value: (
        "[data] window counts positions, not chunks"
    ),
    "data_loader.stage.tensor_generator.batch_size": _to("optimiser.batch"),
    # YAML.
    "gpus": _to("run.processes", len),
    "training.gpus": _to("run.processes", len),
    "dataset.num_chunks": lambda found, value: "[data] window counts positions, not chunks",
    "dataset.train_ratio": lambda found, value: (
        "[data] holdout is a share of games, some thousand are enough"
    ),
    "dataset.input": _chunks,
    "dataset.input_train": _chunks,
    "dataset.input_test": lambda found, value: "games are held out of those trained on: [data] holdout",
    "training.batch_size": _to("optimiser.batch"),
    "training.total_steps": _kept("_steps"),
    "training.warmup_steps": _to("schedule.warmup_steps"),
    "training.lr_values": _rates("training.lr_values"),
    "training.optimizer": lambda found, value: (
        "" if str(value).lower() in ADAMS else "Muon and AdamW move the weights here"
    ),
    "training.weight_decay": _to("optimiser.weight_decay"),
    "training.max_grad_norm": _to("optimiser.clip"),
    "training.policy_loss_weight": _to("losses.policy"),
    "training.value_loss_weight": _to("losses.value"),
    "training.moves_left_loss_weight": _to("losses.moves_left"),
    "training.soft_policy_loss_weight": _to("losses.soft_policy"),
    "training.q_ratio": _to("targets.q_ratio"),
    "training.mask_legal_moves": _only(True, "illegal moves have no share here"),
    "training.precision": _to("run.precision", lambda value: PRECISIONS[str(value).lower()]),
    "training.beta_1": _to("optimiser.adam_beta1"),
    "training.beta_2": _to("optimiser.adam_beta2"),
    "training.swa": lambda found, value: (
        "" if value else "what is exported is always the mean of the weights"
    ),
    "training.swa_steps": _kept("_swa_period"),
    "training.swa_max_n": _kept("_swa_averages"),
    "model.embedding_size": _to("model.width"),
    "model.embedding_dense_sz": _to("model.dense_embedding"),
    "model.encoder_layers": _to("model.layers"),
    "model.encoder_heads": _to("model.heads"),
    "model.encoder_d_model": _same("_as_width", "model.encoder_d_model"),
    "model.encoder_dff": _to("model.ffn"),
    "model.policy_embedding_size": _same("_as_width", "model.policy_embedding_size"),
    "model.pol_embedding_size": _same("_as_width", "model.pol_embedding_size"),
    "model.policy_d_model": _to("model.policy_width"),
    "model.value_embedding_size": _to("model.value_channels"),
    "model.val_embedding_size": _to("model.value_channels"),
    "model.moves_left_embedding_size": _only(8, FIXED),
    "model.mov_embedding_size": _only(8, FIXED),
    "model.use_smolgen": _switch,
    "model.smolgen_hidden_channels": _to("model.smolgen_hidden"),
    "model.smolgen_hidden_sz": _to("model.smolgen_dense"),
    "model.smolgen_gen_sz": _to("model.smolgen_gen"),
    "model.smolgen_activation": _activation("model.smolgen_activation"),
    "model.default_activation": _activation("model.activation"),
    "model.ffn_activation": _activation("model.ffn_activation"),
    "model.square_relu_ffn": _square_relu,
    "model.soft_policy_temperature": _policy_temperature,
    "model.input_type": _to("model.input_format", lambda value: INPUT_FORMATS[str(value).lower()]),
    "model.policy": _only("attention", "policies are attention policies here"),
    "model.value": _only("wdl", "values are W D L here"),
    "model.moves_left": _only("v1", "networks have that head here"),
    "model.residual_blocks": _no_tower,
    "model.filters": lambda found, value: "there is no residual tower",
    "model.se_ratio": lambda found, value: "there is no residual tower",
    "model.pol_encoder_layers": _only(0, "the policy head has no encoders of its own here"),
    "model.dropout_rate": _only(0.0, "there is no dropout"),
}

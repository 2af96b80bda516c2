# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults of lc0's trainers for absent keys, and settings of a run that lc0's trainers lack.

Sources: lczero-training's tf/tfprocess.py (YAML) and proto/training_config.proto (text format), where absent
numbers are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from training.config import PARTS, TrainConfig

Format = Literal["yaml", "text"]

_NO_SUCH_LOSSES = dict.fromkeys(("losses.soft_policy", "losses.short_term", "losses.value_error"), 0.0)

DEFAULTS: dict[Format, dict[str, Any]] = {
    "yaml": {
        "model.activation": "relu",
        "model.heads": 2,
        "model.smolgen_activation": "swish",
        "model.smolgen_gen": 128,
        "optimiser.clip": 10_000.0,
        "schedule.warmup_steps": 0,
        "targets.q_ratio": 0.0,
        **_NO_SUCH_LOSSES,
    },
    "text": {
        "optimiser.clip": 1e9,
        "schedule.warmup_steps": 0,
        "targets.q_ratio": 0.0,
        "losses.policy": 0.0,
        "losses.value": 0.0,
        "losses.moves_left": 0.0,
        **_NO_SUCH_LOSSES,
    },
}
"""By setting of ours. `absent` adds values that derive from others."""

ADDED = (
    *("data.mirror", "data.short_history", "data.unique", "data.holdout"),
    *("optimiser.muon_rate", "optimiser.muon_momentum", "optimiser.weight_decay", "optimiser.ema"),
    "schedule.decay",
)
"""Settings that lc0's trainers lack, or have only if a key enables them."""

ADAMS = ("adam", "adamw", "nadam", "nadamw")
"""lc0's optimisers whose learning rates suit AdamW."""


def absent(settings: Mapping[str, Any], document: Mapping[str, Any], kind: Format) -> dict[str, Any]:
    """Return lc0's defaults for settings that a configuration omits, for the tables that it has."""
    given = {
        f"{table}.{key}" for table, values in settings.items() if isinstance(values, dict) for key in values
    }
    model = dict(settings.get("model", {}))
    found = {**DEFAULTS[kind], **_by_width(model, kind)}
    activation = model.get("activation", found.get("model.activation"))
    if activation:
        found["model.ffn_activation"] = activation
        found.setdefault("model.smolgen_activation", activation)
    return {
        name: value
        for name, value in found.items()
        if name not in given and ("model" if name.startswith("model.") else "training") in document
    }


def _by_width(model: Mapping[str, Any], kind: Format) -> dict[str, Any]:
    """Return the sizes that YAML derives from the embedding's; the text format names each."""
    width = model.get("width")
    if kind == "text" or not isinstance(width, int):
        return {}
    return {"model.ffn": width * 3 // 2, "model.policy_width": width}


def additions(config: TrainConfig, settings: Mapping[str, Any]) -> list[str]:
    """Return the settings of a run that lc0's trainers lack, as `[table] key = value`."""
    found = []
    for name in ADDED:
        table, _, key = name.partition(".")
        value = getattr(getattr(config, table), key)
        if value and key not in settings.get(table, {}) and table in PARTS:
            found.append(
                f"[{table}] {key} = {str(value).lower() if isinstance(value, bool) else f'{value:g}'}"
            )
    return found


def optimiser_of(document: Mapping[str, Any]) -> str:
    """Return lc0's optimiser in lower case (default: SGD with momentum)."""
    training = document.get("training")
    optimiser = training.get("optimizer") if isinstance(training, Mapping) else None
    if isinstance(optimiser, Mapping):  # text format: a message with the optimiser's name
        named = [name for name in optimiser if name in (*ADAMS, "sgd")]
        return named[0] if named else "sgd"
    return str(optimiser or "sgd").lower()

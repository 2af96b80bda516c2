# SPDX-License-Identifier: GPL-3.0-or-later
"""Presets of training, and settings as commented TOML: configs/train-*.toml are generated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.options.tables import parts_of
from protocol.common.settings.spec import Setting, settings_of
from training.config import (
    DataSettings,
    ModelSettings,
    OptimiserSettings,
    RunSettings,
    ScheduleSettings,
    TargetSettings,
    TrainConfig,
)

_DATA = DataSettings(main=("data/main",))
_CPU = TrainConfig(
    output="runs/cpu",
    data=_DATA,
    optimiser=OptimiserSettings(dead_slope=0.1),
    schedule=ScheduleSettings(minutes=30.0),
    run=RunSettings(device="cuda"),
)

PRESETS: dict[str, tuple[str, TrainConfig]] = {
    "cpu": ("The network for computers without a GPU, 128 x 8, trained on a GPU.", _CPU),
    "gpu": (
        "The network for computers with a GPU, 256 x 10 with heads of depth 32, trained on a GPU.",
        replace(
            _CPU,
            output="runs/gpu",
            model=ModelSettings(width=256, layers=10, heads=8, ffn=256, smolgen_dense=256, policy_width=256),
        ),
    ),
    "next": (
        "The next generation of a trained network (`wavefront-training run`): lower rates, one pass.",
        replace(
            _CPU,
            output="runs/next",
            targets=TargetSettings(prior_refreshes=0, prior_value_share=0.35),
            model=ModelSettings(start="wavefront-gpu"),
            optimiser=OptimiserSettings(dead_slope=0.1, muon_rate=0.003, adam_rate=0.0004, ema=0.998),
            schedule=ScheduleSettings(positions=5_000_000, warmup_steps=100, decay=0.9),
        ),
    ),
    "tiny": (
        "A network for experiments: 32 x 2, trained on a CPU in some minutes.",
        TrainConfig(
            output="runs/tiny",
            data=_DATA,
            targets=TargetSettings(prior="", prior_refreshes=0),
            model=ModelSettings(
                width=32,
                layers=2,
                heads=2,
                ffn=48,
                dense_embedding=0,
                smolgen_hidden=4,
                smolgen_dense=16,
                smolgen_gen=8,
                policy_width=32,
                value_channels=8,
                value_hidden=32,
            ),
            optimiser=OptimiserSettings(batch=256, ema=0.995),
            schedule=ScheduleSettings(minutes=4.0, warmup_steps=50),
            run=RunSettings(device="cpu", validate_s=30.0),
        ),
    ),
}
"""Heading and settings by name."""


def config_text(config: TrainConfig, heading: str) -> str:
    """Return a TOML file with every setting, its meaning and its range."""
    lines = [f"# {heading}", "# Use: `wavefront-training train FILE`. `--set` overrides the file."]
    lines += setting_lines(config, settings_of(TrainConfig))
    for name, kind in parts_of(TrainConfig).items():
        lines += ["", f"[{name}]", *setting_lines(getattr(config, name), settings_of(kind))]
    return "\n".join(lines) + "\n"


def setting_lines(group: Any, settings: Mapping[str, Setting]) -> list[str]:
    """Return the settings of a dataclass as commented TOML."""
    lines = []
    for setting in settings.values():
        bounds = f" ({setting.low:g} to {setting.high:g})" if setting.is_number and setting.high <= 1 else ""
        choices = f" ({', '.join(setting.choices)})" if setting.choices else ""
        value = getattr(group, setting.name)
        shown = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
        lines += [f"# {setting.help}{bounds}{choices}", f"{setting.name} = {shown}"]
    return lines

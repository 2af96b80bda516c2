# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of generated files: configurations with all defaults, and answers of the included networks.

python scripts/generated.py configs/label.toml     prints one of TEXTS
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.commands.self_test import evaluated
from engine.options import Options
from evaluator.network import SHIPPED_NETWORKS
from evaluator.settings import Settings
from protocol.common.settings.sources import toml_text
from protocol.common.settings.spec import Setting, settings_of
from training.config import LoopSettings
from training.label.settings import LabelSettings
from training.presets import setting_lines


def evaluator_toml() -> str:
    """Return each setting of the service with its default and a comment."""

    def comment(entry: Setting) -> list[str]:
        text = entry.help[0].upper() + entry.help[1:] + "."
        if entry.choices:
            text += f" One of: {', '.join(entry.choices)}."
        return textwrap.wrap(text, 105)

    heading = (
        "All settings of the evaluator with their defaults.",
        "Use: wavefront-evaluator serve --config configs/evaluator.toml",
    )
    return toml_text(settings_of(Settings).values(), heading, comment)


def label_toml() -> str:
    """Return each setting of labelling with its default."""
    heading = [
        "Games played and labelled by a UCI engine, with all settings at their defaults. Use:",
        "`wavefront-training label --config FILE --output FOLDER`. Flags override the file.",
    ]
    return toml_text(settings_of(LabelSettings).values(), heading, lambda declared: [declared.help])


def loop_toml() -> str:
    """Return each setting of the loop of training with its default."""
    heading = "# Repeats searches, training, gates and promotion. Use: `wavefront-training run FILE`."
    return "\n".join([heading, *setting_lines(LoopSettings(), settings_of(LoopSettings))]) + "\n"


def answers() -> str:
    """Return q and the probabilities of the five likeliest moves, by included network and position."""
    stored = {}
    for network in SHIPPED_NETWORKS:
        found, _ = evaluated(Options().changed(weights=network, backend="reference"))
        stored[network] = [
            {
                "q": round(each["q"], 5),
                "policy": {
                    move: round(share, 5)
                    for move, share in sorted(each["policy"].items(), key=lambda item: -item[1])[:5]
                },
            }
            for each in found
        ]
    return json.dumps(stored, indent=1) + "\n"


TEXTS: dict[str, Callable[[], str]] = {
    "configs/evaluator.toml": evaluator_toml,
    "configs/label.toml": label_toml,
    "configs/loop.toml": loop_toml,
    "engine/commands/self_test.json": answers,
}
"""By file."""

if __name__ == "__main__":
    print(TEXTS[sys.argv[1]](), end="")

# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run depends on, and what an earlier version's checkpoint says of it."""

from dataclasses import replace

from training.config import TargetSettings, TrainConfig, with_defaults


def test_settings_unknown_to_a_checkpoint_have_defaults() -> None:
    identity = TrainConfig().identity()
    earlier = {name: dict(part) for name, part in identity.items()}
    del earlier["targets"]["prior_value_share"]
    assert earlier != identity
    assert with_defaults(earlier) == identity
    changed = replace(TrainConfig(), targets=TargetSettings(prior_value_share=0.4)).identity()
    assert with_defaults(earlier) != changed
    assert with_defaults(changed) == changed

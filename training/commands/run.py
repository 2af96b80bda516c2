# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training run`: searched positions, training, gates and promotion in generations."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from protocol.common.outputs import OVERWRITE, guard_run
from protocol.common.processes import INTERRUPTED
from training.errors import require_torch

HELP = "repeat self-play, annotation, training and gates; the same command resumes an interrupted loop"


ARGUMENTS = {
    "config CONFIG.toml": "settings of the loop; configs/loop.toml shows every key",
    **OVERWRITE,
}


def run(arguments: argparse.Namespace) -> int:
    require_torch()
    from protocol.common.settings.sources import read_document
    from training.loop import BEST, JOURNAL, Loop, loop_settings

    settings = loop_settings(read_document(arguments.config), arguments.config)
    folder = Path(settings.output)
    guard_run(folder / JOURNAL, [folder / BEST], overwrite=arguments.overwrite)
    try:
        Loop(settings, lambda text: print(text, flush=True)).run()
    except KeyboardInterrupt:
        print("interrupted; the same command resumes the loop", file=sys.stderr)
        return INTERRUPTED
    return 0

# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training import`: convert games and chunks of other formats to shards."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from protocol.common.outputs import OVERWRITE, guard_run

HELP = "make shards from labelled games, self-play folders and lc0's chunks"


ARGUMENTS = {
    "sources PATH+": "files and folders: labelled games (.npz.xz), self-play, lc0's chunks",
    "--output! FOLDER": "folder for the shards",
    **OVERWRITE,
    "--json": "print a summary as JSON",
}


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.shards import SIX_DIGITS, SUFFIX
    from training.data.importing import JOURNAL, import_sources

    folder = Path(arguments.output)
    guard_run(folder / JOURNAL, folder.glob(f"{SIX_DIGITS}{SUFFIX}"), overwrite=arguments.overwrite)

    def note(text: str) -> None:
        print(text, file=sys.stderr)

    imported = import_sources(arguments.sources, arguments.output, note, note if arguments.json else print)
    if arguments.json:
        print(json.dumps(imported.data()))
    else:
        print(imported)
    return 1 if imported.broken else 0

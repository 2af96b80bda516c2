# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training label`: play and label games with a UCI engine, and store them as shards."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.common.commands import declare
from protocol.common.outputs import OVERWRITE, guard_run

if TYPE_CHECKING:
    from training.label.manifest import Manifest
    from training.label.settings import LabelSettings

HELP = "play games and label their positions with a UCI engine; the same command resumes"


ARGUMENTS = {
    "--output! FOLDER": "folder for the shards",
    "--config FILE": "settings file; configs/label.toml shows every key",
    "--manifest FILE": "settings of a data set and its digest: make what is missing in the folder, then "
    "check it; without a digest, add it to the file",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from protocol.common.settings.sources import add_flags
    from protocol.common.settings.spec import settings_of
    from training.label.settings import LabelSettings

    add_flags(parser, settings_of(LabelSettings).values())
    declare(
        parser,
        {
            "--backend BACKEND = ''": "backend of the branches' network (default: auto)",
            **OVERWRITE,
            "--json": "print a summary as JSON at the end, and no table",
        },
    )


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.campaign import view_of
    from engine.apps.shards import SIX_DIGITS, SUFFIX
    from protocol.common.processes import INTERRUPTED, run_interruptible
    from protocol.common.settings.sources import from_arguments
    from training.label.archive import JOURNAL, SUMMARY
    from training.label.campaign import LabelCampaign
    from training.label.display import DISPLAY, summary_line
    from training.label.manifest import check_settings, read_manifest
    from training.label.settings import LabelSettings

    manifest = read_manifest(Path(arguments.manifest)) if arguments.manifest else None
    settings = from_arguments(arguments, LabelSettings() if manifest is None else manifest.settings)
    if manifest is not None:
        check_settings(manifest, settings)
    folder = Path(arguments.output)
    files = [folder / SUMMARY, *folder.glob(f"{SIX_DIGITS}{SUFFIX}")]
    guard_run(folder / JOURNAL, files, overwrite=arguments.overwrite)
    campaign = LabelCampaign(settings, folder, backend=arguments.backend, manifest=manifest)
    view = view_of(DISPLAY, as_json=arguments.json)
    ending = "interrupted"
    with view, contextlib.suppress(KeyboardInterrupt):
        ending = run_interruptible(campaign.run(view))
    print(json.dumps(campaign.summary(), ensure_ascii=False) if arguments.json else summary_line(campaign))
    if ending == "interrupted":
        print("interrupted; the same command resumes", file=sys.stderr)
        return INTERRUPTED
    if ending == "time":
        print("the time is over; the same command resumes", file=sys.stderr)
    elif manifest is not None:
        _compare(manifest, folder, settings)
    return 0


def _compare(manifest: Manifest, folder: Path, settings: LabelSettings) -> None:
    """Compare a finished folder with its manifest, or complete the manifest. Raises TrainingError."""
    from training.label.campaign import engine_name
    from training.label.manifest import check_made, made_in, write_made

    if manifest.made is not None:
        made = check_made(manifest, folder)
        print(f"{folder} is what {manifest.path} says: {made.digest}", file=sys.stderr)
        return
    made = made_in(folder, asyncio.run(engine_name(settings)))
    write_made(manifest, made)
    print(f"the digest is in {manifest.path} now: {made.digest}", file=sys.stderr)

# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m training train`: train a network; the same command resumes a run."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from time import perf_counter

from protocol.common.folders import expanded
from protocol.common.outputs import OVERWRITE, figure_of, guard_run, is_figure
from protocol.common.processes import INTERRUPTED
from training.errors import require_torch

HELP = "train a network; the same command resumes an interrupted run"


ARGUMENTS = {
    "config CONFIG.toml": "settings of the run; configs/train-gpu.toml shows every key",
    "--output FOLDER": "folder of the run, instead of the file's",
    "--set* TABLE.KEY=VALUE": "override a setting of the file, such as schedule.minutes=8 or "
    '\'data.main=["a", "b"]\'; may be repeated',
    "--stop-after SECONDS = 0.0": "write a checkpoint and stop after this time; the same command resumes",
    "--plot": "draw losses.png in the run's folder with every checkpoint",
    **OVERWRITE,
    "--json": "print a summary as JSON at the end",
}


def run(arguments: argparse.Namespace) -> int:
    require_torch()
    from training.config import train_config
    from training.plots import METRICS, is_metrics
    from training.run.checkpoint import NAME as CHECKPOINT
    from training.run.processes import run_group
    from training.run.run import NETWORK, PICTURE, TrainJob, train

    started = perf_counter()
    config = train_config(document_of(arguments), arguments.config)
    if arguments.plot:
        figure_of(1, 1)  # fails early if drawing is impossible
    folder = expanded(config.output)
    for name, own in ((NETWORK, None), (METRICS, is_metrics), (PICTURE, is_figure)):
        guard_run(folder / CHECKPOINT, [folder / name], overwrite=arguments.overwrite, own=own)
    job = TrainJob(config, started, arguments.stop_after, arguments.json, arguments.plot)
    status = 0
    try:
        run_group(config.run, train, job)
    except KeyboardInterrupt:
        print("interrupted; the same command resumes the run", file=sys.stderr)
        status = INTERRUPTED
    if arguments.json:
        metrics = folder / METRICS
        lines = metrics.read_text("utf-8").splitlines() if metrics.exists() else []
        network = folder / NETWORK
        last = {entry["kind"]: entry for entry in map(json.loads, lines)}
        print(
            json.dumps({"output": str(folder), "network": str(network) if network.exists() else None, **last})
        )
    return status


def document_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the tables of the file, overridden by --output and --set. Raises SettingsError."""
    from engine.options.tables import merge
    from protocol.common.settings.sources import read_document
    from protocol.common.settings.spec import SettingsError

    document = read_document(arguments.config)
    for text in arguments.set:
        name, equals, value = text.partition("=")
        table, dot, key = name.partition(".")
        if not equals or (dot and not key):
            raise SettingsError(f"--set {text!r}: a setting is written table.key=value")
        given = _list(value, text) if value.startswith("[") else value
        merge(document, {table: {key: given}} if dot else {table: given})
    if arguments.output:
        document["output"] = arguments.output
    return document


def _list(value: str, text: str) -> object:
    """Parse a list in TOML's notation. text: the whole setting. Raises SettingsError."""
    from protocol.common.settings.spec import SettingsError

    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f'--set {text!r}: a list is written ["a", "b"]: {error}') from None

# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of generations: self-play, import, training, gate, promotion, each from the best network so far.

The journal records finished steps. Each step is a command that resumes its own work. The same command thus
resumes a killed loop, which loses at most what its step loses.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.games.journal import Journal, JournalError
from engine.settings.tables import Table
from protocol.host.processes import INTERRUPTED
from protocol.settings.spec import SettingsError
from training.config import LoopSettings
from training.errors import TrainingError
from training.gate import VERDICT
from training.step import run_step

STEPS = ("selfplay", "import", "train", "gate", "promote")
HEADER = {"journal": "wavefront training loop"}
GATE_REFUSES = 3
JOURNAL, BEST = "journal.jsonl", "best.pb.gz"


def loop_settings(document: Mapping[str, Any], source: str) -> LoopSettings:
    """Return the settings of a file. Raises SettingsError that names the key."""
    root = Table(source, document)
    settings = LoopSettings(**root.settings(LoopSettings))
    root.end()
    if not settings.output.strip():
        raise SettingsError(f"{source}: output is the name of a folder, not empty")
    return settings


class Loop:
    """An open loop folder. note: called with each step."""

    def __init__(self, settings: LoopSettings, note: Callable[[str], None]) -> None:
        """Raises TrainingError."""
        self._settings = settings
        self._note = note
        self.folder = Path(settings.output)
        self.best = self.folder / BEST
        try:
            self._journal = Journal(self.folder / JOURNAL, HEADER)
        except JournalError as error:
            raise TrainingError(str(error)) from None
        if self._journal.header != HEADER:
            self._journal.close()
            raise TrainingError(f"{self.folder} is no loop's folder: choose another output")
        self._done = {(entry["generation"], entry["step"]) for entry in self._journal.entries}
        self._generation = max((generation for generation, _ in self._done), default=1)

    def run(self) -> None:
        """Run the configured number of generations.

        Raises TrainingError if a step fails, KeyboardInterrupt if it was interrupted.
        """
        with self._journal:
            self._begin()
            while not self._settings.generations or self._generation <= self._settings.generations:
                for step in STEPS:
                    if (self._generation, step) not in self._done:
                        self._take(step)
                self._generation += 1

    def _begin(self) -> None:
        from evaluator.network import network_file

        if self.best.exists():
            return
        start = network_file(self._settings.start)
        if not start.exists():
            raise TrainingError(f"{start}: no network there")
        _replace(start, self.best)

    @property
    def _place(self) -> Path:
        """Folder of the generation."""
        return self.folder / f"generation-{self._generation:04d}"

    def _take(self, step: str) -> None:
        self._note(f"generation {self._generation}: {step}")
        entry: dict[str, Any] = {"generation": self._generation, "step": step}
        if step == "promote":
            verdict = json.loads((self._place / "gate" / VERDICT).read_text("utf-8"))
            entry |= {"accepted": verdict["accepted"], "elo": verdict["elo"]}
            if verdict["accepted"]:
                _replace(self._place / "run" / "network.pb.gz", self.best)
            self._note(
                f"generation {self._generation}: {'promoted' if verdict['accepted'] else 'not promoted'}"
            )
        else:
            program, arguments = self._command(step)
            _run(program, arguments, step)
        self._journal.append(entry)
        self._done.add((self._generation, step))

    def _command(self, step: str) -> tuple[str, list[str]]:
        """Return program and arguments of a step's command."""
        settings, place = self._settings, self._place
        selfplay, data, run = place / "selfplay", self.folder / "data", place / "run"
        match step:
            case "selfplay":
                files = [settings.selfplay] if settings.selfplay else []
                numbers = {"games": settings.games, "nodes": settings.nodes, "seed": self._generation}
                flags = [text for name, number in numbers.items() for text in (f"--{name}", str(number))]
                where = ["--weights", str(self.best), "--output", str(selfplay)]
                return "engine", ["selfplay", *files, *flags, *where]
            case "import":
                return "training", ["import", str(selfplay / "training"), "--output", str(data)]
            case "train":
                changed = (
                    f"data.main={data}",
                    f"data.window={settings.window}",
                    f"model.start={self.best}",
                    "targets.prior=<empty>",
                )
                sets = [text for change in changed for text in ("--set", change)]
                return "training", ["train", settings.train, "--output", str(run), *sets]
            case _:
                numbers = {"nodes": settings.gate_nodes, "games": settings.gate_games}
                flags = [text for name, number in numbers.items() for text in (f"--{name}", str(number))]
                more = [f"--match={argument}" for argument in settings.match]
                where = ["--against", str(self.best), "--output", str(place / "gate")]
                return "training", [
                    *("gate", str(run / "network.pb.gz"), *flags, "--sprt", settings.sprt, *where, *more)
                ]


def _run(program: str, arguments: list[str], step: str) -> None:
    # Standard output is reserved for the loop's caller.
    status, _ = run_step(program, arguments, output=sys.stderr)
    if status in (INTERRUPTED, -signal.SIGTERM):
        raise KeyboardInterrupt
    if status and not (step == "gate" and status == GATE_REFUSES):
        raise TrainingError(f"{step} failed with exit status {status}; the same command tries it again")


def _replace(source: Path, target: Path) -> None:
    """Copy a file atomically: a reader of `target` sees the old or the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.part")
    shutil.copyfile(source, unfinished)
    unfinished.replace(target)

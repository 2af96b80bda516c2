# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop of generations: searched positions, training, gates, promotion, each from the best network so far.

The positions come from self-play and from given shards. Searches of the best network annotate them. The
journal records finished steps. Each step is a command that resumes its own work. The same command thus
resumes a killed loop, which loses at most what its step loses. It ends where generations in a row are not
promoted.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from engine.apps.games import Journal
from engine.apps.shards import ShardError, read_header
from engine.options.tables import Table
from protocol.common.files import write_atomically
from protocol.common.processes import INTERRUPTED
from protocol.common.settings.spec import SettingsError
from training.config import LoopSettings
from training.data.annotations import prior_identity
from training.data.reading import count_positions, last_of, shards_of
from training.devices import backends_of, evaluators
from training.errors import TrainingError
from training.gate import VERDICT
from training.step import run_step

HEADER = {"journal": "wavefront training loop"}
GATE_REFUSES = 3
JOURNAL, BEST = "journal.jsonl", "best.pb.gz"
GATES = ("gate", "clock")


def steps(settings: LoopSettings) -> tuple[str, ...]:
    """Return the steps of a generation, in order."""
    wanted = {
        "selfplay": settings.games > 0,
        "annotate": settings.annotate_nodes > (0 if settings.data else settings.nodes),
        "clock": bool(settings.gate_clock),
    }
    every = ("selfplay", "annotate", "train", *GATES, "promote")
    return tuple(step for step in every if wanted.get(step, True))


def loop_settings(document: Mapping[str, Any], source: str) -> LoopSettings:
    """Return the settings of a file. Raises SettingsError that names the key."""
    settings = Table(source, document).whole(LoopSettings)
    if not settings.output.strip():
        raise SettingsError(f"{source}: output is the name of a folder, not empty")
    if not settings.data and not settings.games:
        raise SettingsError(f"{source}: games is 0 and data is empty, so there is nothing to train on")
    return settings


class Loop:
    """An open loop folder. note: called with each step."""

    def __init__(self, settings: LoopSettings, note: Callable[[str], None]) -> None:
        """Raises TrainingError and JournalError."""
        self._settings = settings
        self._note = note
        self.folder = Path(settings.output)
        self.best = self.folder / BEST
        self._journal = Journal(self.folder / JOURNAL, HEADER)
        if self._journal.header != HEADER:
            self._journal.close()
            raise TrainingError(f"{self.folder} is no loop's folder: choose another output")
        entries = self._journal.entries
        self._promoted: list[bool] = [entry["accepted"] for entry in entries if entry["step"] == "promote"]
        self._done = {(entry["generation"], entry["step"]) for entry in entries}
        self._generation = max((generation for generation, _ in self._done), default=1)

    def run(self) -> None:
        """Run generations until one of the configured limits.

        Raises TrainingError if a step fails, KeyboardInterrupt if it was interrupted.
        """
        settings = self._settings
        with self._journal:
            self._begin()
            while not settings.generations or self._generation <= settings.generations:
                if settings.losses and self._losses() >= settings.losses:
                    self._note(f"the last {settings.losses} generations were not promoted: the loop ends")
                    return
                for step in steps(settings):
                    if (self._generation, step) not in self._done:
                        self._take(step)
                self._generation += 1

    def _losses(self) -> int:
        """Return how many of the last generations were not promoted, in a row."""
        return len([*takewhile(lambda accepted: not accepted, reversed(self._promoted))])

    def _begin(self) -> None:
        from evaluator.network import network_file

        start = network_file(self._settings.start)
        if not start.exists():
            raise TrainingError(f"{start}: no network there")
        if not self.best.exists():
            write_atomically(self.best, start.read_bytes(), durable=True)

    @property
    def _place(self) -> Path:
        """Folder of the generation."""
        return self.folder / f"generation-{self._generation:04d}"

    def _take(self, step: str) -> None:
        self._note(f"generation {self._generation}: {step}")
        entry: dict[str, Any] = {"generation": self._generation, "step": step}
        if step == "promote":
            files = [self._place / gate / VERDICT for gate in GATES if gate in steps(self._settings)]
            verdicts = [json.loads(file.read_text("utf-8")) for file in files if file.exists()]
            accepted = len(verdicts) == len(files) and all(verdict["accepted"] for verdict in verdicts)
            entry |= {"accepted": accepted, "elo": [verdict["elo"] for verdict in verdicts]}
            if accepted:
                write_atomically(self.best, self._network.read_bytes(), durable=True)
            self._promoted.append(accepted)
            self._note(f"generation {self._generation}: {'promoted' if accepted else 'not promoted'}")
        elif step != "clock" or self._accepted("gate"):
            with self._evaluators(step) as device:
                for program, arguments in self._commands(step, device):
                    _run(program, arguments, step)
        self._journal.append(entry)
        self._done.add((self._generation, step))

    @property
    def _network(self) -> Path:
        """The generation's network."""
        return self._place / "run" / "network.pb.gz"

    def _accepted(self, gate: str) -> bool:
        return bool(json.loads((self._place / gate / VERDICT).read_text("utf-8"))["accepted"])

    @contextmanager
    def _evaluators(self, step: str) -> Iterator[dict[str, str]]:
        """Yield the flag of a step's commands that names their evaluators: in gates one for each device."""
        backend = self._settings.backend
        if step in GATES and len(backends := backends_of(backend)) > 1:
            with evaluators(backends, self.best) as addresses:
                yield {"evaluator": addresses}
        else:
            yield {"backend": backend} if backend else {}

    def _commands(self, step: str, device: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
        """Yield programs and arguments of a step's commands. device: of `_evaluators`."""
        settings, place, data = self._settings, self._place, self.folder / "data"
        match step:
            case "selfplay":
                files = [settings.selfplay] if settings.selfplay else []
                numbers = {"games": settings.games, "nodes": settings.nodes, "seed": self._generation}
                where = {"weights": self.best, "output": data / f"{self._generation:06d}", "format": "shards"}
                yield "engine", ["selfplay", *files, *_flags(numbers | where | device)]
            case "annotate":
                shards = self._shards_to_annotate()
                if shards:
                    flags = {"nodes": settings.annotate_nodes, "weights": self.best}
                    flags |= {"constants-of": settings.start} | device
                    yield "training", ["annotate", *map(str, shards), *_flags(flags)]
            case "train":
                shards = self._newest_shards()
                prior: dict[str, object] = {"prior": "<empty>"}
                if settings.data or "annotate" in steps(settings):
                    prior = {"prior": self.best, "prior_nodes": settings.annotate_nodes}
                changed: dict[str, object] = {"data.main": json.dumps([*map(str, shards)]), "data.window": 0}
                changed |= {"model.start": self.best} | {f"targets.{name}": prior[name] for name in prior}
                if settings.passes:
                    length = max(1, round(settings.passes * sum(map(count_positions, shards))))
                    changed |= {"schedule.minutes": 0, "schedule.positions": length}
                sets = [text for name, value in changed.items() for text in ("--set", f"{name}={value}")]
                yield "training", ["train", settings.train, "--output", str(place / "run"), *sets]
            case _:
                limit = {"nodes": settings.gate_nodes} if step == "gate" else {"tc": settings.gate_clock}
                numbers = {"games": settings.gate_games, "sprt": settings.sprt}
                where = {"against": self.best, "constants-of": settings.start, "output": place / step}
                more = [f"--{name}={value}" for name, value in device.items()]
                match = [f"--match={argument}" for argument in (*more, *settings.match)]
                yield "training", ["gate", str(self._network), *_flags(limit | numbers | where), *match]

    def _newest_shards(self) -> list[Path]:
        """Return the shards that were made or annotated last, as many as hold `window` positions."""
        folders = [*self._settings.data, *([str(self.folder / "data")] if self._settings.games else [])]
        by_time = sorted(shards_of(folders), key=lambda path: path.stat().st_mtime_ns)
        return sorted(last_of(by_time, self._settings.window))

    def _shards_to_annotate(self) -> list[Path]:
        """Return the shards of the generation's self-play, if its searches were smaller, and those of `data`
        that the best network has not annotated yet: those annotated longest ago first, as many as hold
        `annotate_positions`."""
        ours = prior_identity(str(self.best), self._settings.annotate_nodes)
        left = self._settings.annotate_positions
        waiting = []
        for path in shards_of(self._settings.data):
            try:
                header = read_header(path)
            except (ShardError, OSError):
                continue  # training names it
            if header.get("annotated_by") == ours:
                left -= count_positions(path)
            else:
                waiting.append((bool(header.get("annotated_by")), path.stat().st_mtime, path))
        chosen = last_of([path for _, _, path in sorted(waiting, reverse=True)], left)
        if self._settings.games and self._settings.annotate_nodes > self._settings.nodes:
            chosen += shards_of([self.folder / "data" / f"{self._generation:06d}"])
        return chosen


def _flags(values: Mapping[str, object]) -> list[str]:
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]


def _run(program: str, arguments: list[str], step: str) -> None:
    # Standard output is reserved for the loop's caller.
    status, _ = run_step(program, arguments, output=sys.stderr)
    if status in (INTERRUPTED, -signal.SIGTERM):
        raise KeyboardInterrupt
    if status and not (step in GATES and status == GATE_REFUSES):
        raise TrainingError(f"{step} failed with exit status {status}; the same command tries it again")

# SPDX-License-Identifier: GPL-3.0-or-later
"""A run from its settings to its network: resuming, stopping, checkpoints and metrics."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any, TextIO

from protocol.common.files import lock
from protocol.common.folders import expanded
from protocol.common.printing import failing_as
from training.config import RunSettings, TrainConfig, with_defaults
from training.data.following import Follower, NewShards
from training.data.reading import ShardReader, shard_files
from training.errors import TrainingError
from training.export import export_network
from training.model.initial import count_parameters, initial_network
from training.plots import METRICS, plot_runs
from training.run.checkpoint import differences, has_checkpoint, load_checkpoint, save_checkpoint
from training.run.display import RunView, dead_told
from training.run.processes import Group
from training.run.trainer import Trainer

NETWORK = "network.pb.gz"
PICTURE = "losses.png"
AGREE_EVERY = 10
"""Steps between checks of clock and signals, at which several processes synchronise."""


@dataclass(frozen=True, slots=True)
class TrainJob:
    """Settings of a process of a run. stop_after_s: seconds from `started` (of `monotonic`) after which the
    run stops, to be resumed; 0: never. as_json: standard output is reserved. plot: draw the losses with every
    checkpoint."""

    config: TrainConfig
    started: float
    stop_after_s: float = 0.0
    as_json: bool = False
    plot: bool = False


def train(group: Group, job: TrainJob) -> None:
    """Train in one of the processes of a run. Raises TrainingError, and KeyboardInterrupt after a signal,
    once the checkpoint is written."""
    if group.rank:
        _Run(group, job, None).loop()
        return
    with RunView(to_stderr=job.as_json) as view:
        _Run(group, job, view).loop()


class _Run:
    def __init__(self, group: Group, job: TrainJob, view: RunView | None) -> None:
        self.group, self.job, self.config, self.view = group, job, job.config, view
        self.folder = expanded(self.config.output)
        self.signalled = False
        self.follower: Follower | None = None
        if view is not None:
            with failing_as(TrainingError, f"cannot make {self.folder}"):
                self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._locked()
        group.agreed([0.0])  # the other ranks wait for rank 0's lock
        saved = load_checkpoint(self.folder)
        identity = self.config.identity()
        if saved is not None and (changes := differences(with_defaults(saved["settings"]), identity)):
            changed = "; ".join(changes)
            raise TrainingError(
                f"{self.folder} holds a run of other settings ({changed}): choose another "
                "output, or move it away"
            )
        self.reader = self._reader()
        self.shards = self._shards(saved)
        self.trainer = self._trainer()
        self.seconds = 0.0
        if saved is not None:
            self.trainer.load_state_dict(saved["trainer"])
            self.seconds = float(saved["seconds"])
            self.note(f"going on after {self.trainer.steps:,} steps: {self.folder}")
        if not self.trainer.finite():
            start = self.config.model.start if saved is None else f"the checkpoint in {self.folder}"
            raise TrainingError(f"{start} has weights that are not finite: begin from another")
        self.trainer.set_targets()
        self.note(f"targets made; {perf_counter() - job.started:.0f} s since the start")

    def _locked(self) -> TextIO:
        """Lock the run for this process; wait until another process has ended."""
        file = (self.folder / "lock").open("a", encoding="utf-8")
        if not lock(file.fileno()):
            self.note(f"another process is at work in {self.folder}: waiting for its end")
            while not lock(file.fileno()):
                pass  # `lock` waits, too
        return file

    def note(self, text: str) -> None:
        if self.view is not None:
            self.view.note(text)

    def _reader(self) -> ShardReader:
        config = self.config
        input_format = int(initial_network(config.model, config.run.seed).template.input_format)
        return ShardReader(
            config.data, config.targets, input_format=input_format, seed=config.run.seed, note=self.note
        )

    def _shards(self, saved: dict[str, Any] | None) -> list[str]:
        """Return the initial shards, the same on every rank: a checkpoint's, if shards are followed."""
        if self.config.data.follow_s and saved is not None and "shards" in saved:
            # In 0.2.0 each entry was a pair.
            files = [each if isinstance(each, str) else str(each[0]) for each in saved["shards"]]
            for file in files:
                if not Path(file).exists():
                    raise TrainingError(
                        f"{file}, which was in the run, is gone: bring it back, or go on with the "
                        "shards that are there by data.follow_s=0"
                    )
            return files
        found: list[str] = self.group.shared(None if self.group.rank else shard_files(self.config.data))
        return found

    def _trainer(self) -> Trainer:
        """Create the trainer, and keep only the readable shards."""
        config = self.config
        threads = config.run.threads or os.cpu_count() or 1
        read = self.reader.read_all(self.shards, threads, self.note)
        self.shards = [shard.file for shard in read]
        tables = [shard.table for shard in read]
        count = sum(map(len, tables))
        if self.group.agreed([float(count)]) != [count]:
            raise TrainingError(
                f"process {self.group.rank} read other positions than the first: are shards changing?"
            )
        trainer = Trainer(config, tables, self.group)
        table = trainer.table
        self.note(
            f"{count:,} positions, {sum(int(part.branch.sum()) for part in tables):,} of them beside games, "
            f"{int(table.held_out.sum()):,} held out, {int((table.taken == 0).sum()):,} repeated; "
            f"{sum(part.bytes for part in tables) / 2**20:,.0f} MiB"
        )
        self.note(
            f"{count_parameters(trainer.network):,} parameters on {self.group.size} x {self.group.device}"
        )
        if config.model.revive:
            self.note(f"{trainer.revived:,} dead units of feed-forward layers restarted")
        return trainer

    @property
    def progress(self) -> float:
        """Finished share of the run."""
        schedule = self.config.schedule
        if schedule.minutes:
            return min(1.0, self.seconds / (60 * schedule.minutes))
        return min(1.0, self.trainer.positions / schedule.positions)

    def loop(self) -> None:
        """Train until the run is over, or a signal or the time limit stops it."""
        handlers = self._catch_signals()
        clocks = _Clocks(self.config.run, self.trainer.positions)
        leave = False
        if self.config.data.follow_s and not self.group.rank:
            self.follower = Follower(self.config.data, self.reader, self.shards)
        try:
            while self.progress < 1 and not leave:
                self.trainer.step(self.progress)
                if self.trainer.steps % AGREE_EVERY == 0:
                    leave = self._tick(clocks)
            self._check()
            self._report(clocks)
            self._validate()
            self._save()
        finally:
            if self.follower is not None:
                self.follower.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.signalled:
            raise KeyboardInterrupt
        if leave:
            self.note("the time is over; the same command resumes")
        else:
            self._finish()

    def _tick(self, clocks: _Clocks) -> bool:
        """Update the run's time and do what rank 0 finds due. Return True to stop."""
        self._check()
        now = perf_counter()
        limit = self.job.stop_after_s
        leaves = self.signalled or bool(limit and now - self.job.started >= limit)
        due = [clock.due(now) for clock in (clocks.report, clocks.validate, clocks.checkpoint)]
        due.append(self.follower is not None and self.follower.ready())
        passed, *said = self.group.agreed([now - clocks.last, float(leaves), *map(float, due)])
        # The first steps compile. That is not training time.
        self.seconds += 0.0 if clocks.compiling else passed
        clocks.compiling = False
        if said[1]:
            self._report(clocks)
        if said[4]:
            self._join()
        if said[2]:
            self._validate()
            clocks.validate.restart()
        if said[3]:
            self._save()
            clocks.checkpoint.restart()
        clocks.last = perf_counter()
        return bool(said[0])

    def _check(self) -> None:
        """Raise TrainingError after a loss or gradient that is not finite. The checkpoint is older."""
        broken = self.trainer.broken_tables()
        if broken is None:
            return
        names = ", ".join(self.shards[number] for number in broken)
        why = f"targets of {names} are not finite: remove them, or import them again"
        if not broken:
            why = "all targets are finite: lower [optimiser] muon_rate and adam_rate"
        kept = "the last checkpoint is kept" if has_checkpoint(self.folder) else "there is no checkpoint yet"
        raise TrainingError(
            f"the loss was not finite in one of the last {AGREE_EVERY} steps before step "
            f"{self.trainer.steps:,} ({why}); {kept}"
        )

    def _join(self) -> None:
        """Add the shards that rank 0 has read, on every rank at the same step."""
        began = perf_counter()
        found: NewShards = self.group.shared(None if self.follower is None else self.follower.take())
        for note in found.notes:
            self.note(note)
        leaving = {number for number, file in enumerate(self.shards) if file in found.leaving}
        if not found.shards and not leaving:
            return
        self.trainer.join([shard.table for shard in found.shards], leaving)
        self.shards = [file for number, file in enumerate(self.shards) if number not in leaving]
        self.shards += [shard.file for shard in found.shards]
        self.note(
            f"{len(found.shards)} shards joined, {len(leaving)} left: {len(self.trainer.table):,} positions; "
            f"{perf_counter() - began:.1f} s"
        )

    def _catch_signals(self) -> dict[int, Any]:
        def stop(number: int, frame: FrameType | None) -> None:
            self.signalled = True

        return {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}

    def _report(self, clocks: _Clocks) -> None:
        positions = self.trainer.positions - clocks.reported_positions
        figures = self.trainer.figures()
        figures["positions_per_second"] = positions / max(1e-9, clocks.report.age())
        clocks.reported_positions = self.trainer.positions
        clocks.report.restart()
        if positions:
            self._write("step", figures)

    def _validate(self) -> None:
        if self.group.rank == 0:
            figures = self.trainer.validate()
            if figures:
                shares = self.trainer.dead_shares()
                self._write("held_out", {**figures, "dead_units": shares})
                if told := dead_told(shares):
                    self.note(told)

    def _write(self, kind: str, figures: Mapping[str, Any]) -> None:
        if self.view is None:
            return
        trainer = self.trainer
        entry = {
            "kind": kind,
            "steps": trainer.steps,
            "positions": trainer.positions,
            "seconds": round(self.seconds, 3),
            "progress": self.progress,
            "epoch": trainer.sampler.epoch,
            "table": len(trainer.table),
            **figures,
        }
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self.view.figures(entry)

    def _save(self) -> None:
        if self.group.rank == 0:
            state = {
                "settings": self.config.identity(),
                "trainer": self.trainer.state_dict(),
                "shards": self.shards,
                "seconds": self.seconds,
            }
            save_checkpoint(self.folder, state)
            self.note(f"checkpoint after {self.trainer.steps:,} steps")
            if self.job.plot and (self.folder / METRICS).exists():
                plot_runs([self.folder], self.folder / PICTURE)

    def _finish(self) -> None:
        if self.group.rank == 0:
            with self.trainer.optimiser.averaged():
                exported = export_network(self.trainer.network, self.folder / NETWORK)
            self.note(str(exported))


class _Clock:
    """A periodic timer."""

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.restart()

    def restart(self) -> None:
        self.since = perf_counter()

    def age(self) -> float:
        return perf_counter() - self.since

    def due(self, now: float) -> bool:
        return now - self.since >= self.period_s


class _Clocks:
    """Clocks of a loop. last: when the run's time was last updated."""

    def __init__(self, settings: RunSettings, positions: int) -> None:
        self.report = _Clock(settings.report_s)
        self.validate = _Clock(settings.validate_s)
        self.checkpoint = _Clock(settings.checkpoint_s)
        self.last = perf_counter()
        self.compiling = True
        self.reported_positions = positions

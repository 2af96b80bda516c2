# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of self-play, from TOML and flags. `configs/selfplay.toml` shows every key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from engine.apps.games.identity import options_identity
from engine.apps.games.openings import OpeningSettings
from engine.options import Options
from engine.options.tables import Table
from engine.workers import MAX_WORKERS
from protocol.common.settings.spec import UNREACHED, SettingsError, setting

SELFPLAY_OPTIONS = Options(
    hash=2,
    tree_memory=256,
    network_constants=False,
    cpuct=1.2,
    cpuct_factor=0.0,
    fpu_value=0.0,
    policy_temperature=1.0,
    two_fold_draws=False,
    sticky_endgames=False,
    smart_pruning_factor=0.0,
    cache_history_length=7,
    temperature=1.0,
    temp_decay_delay_moves=20,
    temp_decay_moves=60,
    dirichlet_noise_epsilon=0.25,
)
"""Self-play's differences from the engine's options: lc0's values, and a temperature that falls from move 20
on. Each game has its own evaluation cache and tree, so these are small."""

TrainingFormat: TypeAlias = Literal["lc0", "shards"]

WITHOUT_NETWORK = ("random", "uniform")
"""Backends whose evaluations are not the network's; all others are equivalent."""


@dataclass(frozen=True, slots=True)
class Resignation:
    """A side resigns if its winning chance, 50 (q + 1) percent, is too low for `moves` consecutive own moves.

    percent: limit of the winning chance; 0 disables resigning. earliest_move: first move to count.
    playthrough: percentage of games without resignation, to measure how often resigning would be wrong.
    """

    percent: float = setting(2.0, high=50)
    moves: int = setting(2, low=1, high=1000)
    earliest_move: int = setting(1, low=1, high=10_000)
    playthrough: float = setting(20.0, high=100)


@dataclass(frozen=True, slots=True)
class SelfPlayConfig:
    """Games of one network against itself.

    games: 0 plays until interrupted. nodes: visits of the root per move (playouts with the option
    nodes_as_playouts). nodes_spread: each move's number is uniform in nodes (1 ± nodes_spread). reuse_tree:
    keep the last search's tree. max_plies: a longer game is drawn. random_plies: maximum random moves after
    the opening; each game draws their number. concurrency: concurrent games; 0 keeps the evaluator busy.
    workers: processes of this machine that play; 0 chooses by the evaluator's speed. time_limit_s: seconds of
    play; 0 is no limit. output: folder for training data, PGN, journal and summary. format: of the training
    data: lc0's chunks, or shards for `wavefront-training`.
    """

    options: Options = SELFPLAY_OPTIONS
    games: int = setting(1000, high=UNREACHED)
    nodes: int = setting(800, low=1, high=UNREACHED)
    nodes_spread: float = setting(0.0, high=1)
    reuse_tree: bool = setting(False)
    max_plies: int = setting(450, low=1, high=10_000)
    random_plies: int = setting(0, high=1000)
    concurrency: int = setting(0, high=4096)
    workers: int = setting(0, high=MAX_WORKERS, zero="auto")
    time_limit_s: float = setting(0.0, high=1e9)
    seed: int = setting(1, high=2**63)
    openings: OpeningSettings = field(default_factory=OpeningSettings)
    resign: Resignation = field(default_factory=Resignation)
    output: str = setting("selfplay")
    format: TrainingFormat = setting("lc0", choices=get_args(TrainingFormat))

    def identity(self) -> dict[str, Any]:
        """Return all dependencies of games as JSON data. Games with different ones must not share a folder.

        It excludes the number of games, and the place and speed of playing. Networks and books are identified
        by their content.
        """
        left_out = ("games", "concurrency", "workers", "time_limit_s", "output", "options")
        data: dict[str, Any] = {name: value for name, value in asdict(self).items() if name not in left_out}
        batching = {"minibatch_size", "batches_in_flight", "second_batch", "look_ahead"}
        batching |= {"visits_per_position", "in_flight_factor"}
        where = {"evaluator", "evaluator_keys", "evaluator_compression"}
        apart = {"threads", "log_file", *where, *batching}
        if self.options.backend not in WITHOUT_NETWORK:
            apart.add("backend")
        if self.format == "lc0":
            del data["format"]  # Keeps folders from before shards valid.
        data["options"] = options_identity(self.options, apart=apart)
        data["openings"] = self.openings.identity()
        identity: dict[str, Any] = json.loads(json.dumps(data))
        return identity


def selfplay_config(document: Mapping[str, Any], source: str) -> SelfPlayConfig:
    """Return the configuration in a document. source: its name in messages.

    Raises SettingsError, which names the key.
    """
    root = Table(source, document)
    engine = root.table("engine")
    config = SelfPlayConfig(
        options=engine.rest_over(SELFPLAY_OPTIONS) if engine is not None else SELFPLAY_OPTIONS,
        openings=root.part("openings", OpeningSettings),
        resign=root.part("resign", Resignation),
        **root.settings(SelfPlayConfig),
    )
    root.end()
    if not config.output.strip():
        raise SettingsError(f"{source}: output is the name of a folder, not empty")
    return config

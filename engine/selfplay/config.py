"""What self-play plays, as plain data, from TOML and flags. `configs/selfplay.toml` shows every key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.games.identity import options_identity
from engine.games.openings import OpeningSettings
from engine.match.config import MAX_WORKERS
from engine.match.configfile import opening_settings, with_options
from engine.options import Options
from engine.settings.tables import Table
from protocol.settings.spec import SettingsError

SELFPLAY_OPTIONS = Options(
    hash=2,
    tree_memory=256,
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
"""Where self-play's options differ from the engine's: as lc0's, and a temperature that falls from move 20 on.
The evaluation cache and the tree are each game's own, hence small."""

WITHOUT_NETWORK = ("random", "uniform")
"""Backends whose evaluations are not the network's; all others compute the same."""


@dataclass(frozen=True, slots=True)
class Resignation:
    """A side resigns when its winning chance, 50 (q + 1) percent, was below `percent` at `moves` moves of its
    own in a row, from move `earliest_move` on; percent 0: never.

    playthrough: percent of the games that are played on all the same, to see how many of the resigned ones
    would not have been lost.
    """

    percent: float = 2.0
    moves: int = 2
    earliest_move: int = 1
    playthrough: float = 20.0


@dataclass(frozen=True, slots=True)
class SelfPlayConfig:
    """Games of one network against itself.

    games: 0 plays until interrupted. nodes: visits of the root per move (own visits with the option
    nodes_as_playouts); nodes_spread: each move's number is drawn evenly from nodes (1 ± nodes_spread).
    reuse_tree: what the last move's search found is kept. max_plies: a longer game is drawn. random_plies:
    at most so many random moves after the opening, how many is drawn for each game. concurrency: games at
    once, 0 is what keeps the evaluator busy. workers: processes of this machine that play them, 0 is as many
    as the evaluator asks for. time_limit_s: seconds after which no more is played, 0 is none.
    output: folder for training data, PGN, journal and summary.
    """

    options: Options = SELFPLAY_OPTIONS
    games: int = 1000
    nodes: int = 800
    nodes_spread: float = 0.0
    reuse_tree: bool = False
    max_plies: int = 450
    random_plies: int = 0
    concurrency: int = 0
    workers: int = 0
    time_limit_s: float = 0.0
    seed: int = 1
    openings: OpeningSettings = field(default_factory=OpeningSettings)
    resign: Resignation = field(default_factory=Resignation)
    output: str = "selfplay"

    def identity(self) -> dict[str, Any]:
        """All that games depend on, as JSON data: games that differ here are not mixed in one folder.

        How many games, and where and how fast they are played, is no part of it; a network file counts by
        content.
        """
        left_out = ("games", "concurrency", "workers", "time_limit_s", "output", "options")
        data: dict[str, Any] = {name: value for name, value in asdict(self).items() if name not in left_out}
        apart = {"evaluator", "threads", "minibatch_size", "batches_in_flight", "log_file"}
        if self.options.backend not in WITHOUT_NETWORK:
            apart.add("backend")
        data["options"] = options_identity(self.options, apart=apart)
        identity: dict[str, Any] = json.loads(json.dumps(data))
        return identity


def selfplay_config(document: Mapping[str, Any], place: str) -> SelfPlayConfig:
    """The configuration that tables stand for. place: names their source in messages.

    Raises OptionError, which names the key.
    """
    root = Table(place, document)
    options = SELFPLAY_OPTIONS
    engine = root.table("engine")
    if engine is not None:
        options = with_options(options, engine.rest(), engine.place)
    default = SelfPlayConfig()
    config = SelfPlayConfig(
        options=options,
        games=root.whole("games", default.games, 0),
        nodes=root.whole("nodes", default.nodes, 1),
        nodes_spread=root.number("nodes_spread", default.nodes_spread, 0, 1),
        reuse_tree=root.flag("reuse_tree", default.reuse_tree),
        max_plies=root.whole("max_plies", default.max_plies, 1, 10_000),
        random_plies=root.whole("random_plies", default.random_plies, 0, 1000),
        concurrency=root.whole("concurrency", default.concurrency, 0, 4096),
        workers=root.whole_or_auto("workers", MAX_WORKERS),
        time_limit_s=root.number("time_limit_s", default.time_limit_s, 0, 1e9),
        seed=root.whole("seed", default.seed, 0, 2**63),
        openings=opening_settings(root.table("openings")),
        resign=_resignation(root.table("resign")),
        output=root.text("output", default.output),
    )
    root.end()
    if not config.output.strip():
        raise SettingsError(f"{place}: output is the name of a folder, not empty")
    return config


def _resignation(table: Table | None) -> Resignation:
    default = Resignation()
    if table is None:
        return default
    resign = Resignation(
        percent=table.number("percent", default.percent, 0, 50),
        moves=table.whole("moves", default.moves, 1, 1000),
        earliest_move=table.whole("earliest_move", default.earliest_move, 1, 10_000),
        playthrough=table.number("playthrough", default.playthrough, 0, 100),
    )
    table.end()
    return resign

# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a training run: one class per TOML table. configs/train-gpu.toml shows every key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from engine.options.tables import Table
from protocol.common.settings.spec import UNREACHED, SettingsError, setting

INPUT_FORMATS = ("1", "2", "3", "4", "5", "132", "133")
ACTIVATIONS = ("mish", "relu", "swish", "relu_squared", "selu")


@dataclass(frozen=True, slots=True)
class DataSettings:
    """Selection of training positions."""

    main: tuple[str, ...] = setting((), "folders and files of shards", low=1)
    window: int = setting(
        0, "maximum positions of each folder, taken from its newest shards; 0: all", high=10**12
    )
    follow_s: float = setting(
        0.0,
        "seconds between checks for new shards in the folders of main; 0: never",
        high=1e7,
    )
    sampling: float = setting(1.0, "share of the positions that is used, chosen at random", high=1)
    unique: bool = setting(True, "use a position once if it occurs in several games")
    holdout: float = setting(0.004, "share of the games held out for validation", high=0.5)
    won_share: float = setting(0.65, "share of the positions beyond 600 centipawns used in an epoch", high=1)
    decided_share: float = setting(
        0.5, "share of the positions beyond 1500 centipawns used in an epoch", high=1
    )
    surprise: float = setting(
        0.0,
        "share of the sampling that follows the divergence of a target from the prior; 0: uniform sampling",
        high=1,
    )
    mirror: float = setting(
        0.5,
        "share of the positions without castling rights that are mirrored (input formats 1 and 2)",
        high=1,
    )
    short_history: float = setting(
        0.1,
        "share of the positions whose history is shortened to 0 to 7 plies (input formats 1 and 2)",
        high=1,
    )


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Targets of the heads; training/targets.py has the formulas."""

    prior: str = setting(
        "wavefront-gpu",
        "network whose policy is multiplied by the engine's scores: a file, wavefront-cpu or "
        "wavefront-gpu; empty: scores alone",
    )
    prior_nodes: int = setting(
        0,
        "use the stored searches of at least this number of nodes (`annotate --nodes`), by any network, "
        "which no refresh replaces; 0: the prior network's own policy",
        high=UNREACHED,
    )
    prior_exponent: float = setting(0.85, "exponent of the prior's policy", high=2)
    prior_value_share: float = setting(
        0.0, "share of the prior's WDL in the WDL target of annotated labelled positions", high=1
    )
    prior_refreshes: int = setting(
        1,
        "how often the mean of the trained weights replaces the prior, evenly over the constant "
        "learning rate",
        high=100,
    )
    score_cp: float = setting(40.0, "temperature of scores in centipawns, at equality", low=1, high=1000)
    score_slope: float = setting(0.0024, "growth of that temperature per centipawn of the score", high=1)
    unlisted_nats: float = setting(
        0.8, "distance of unlisted moves below the worst listed one, in nats", high=20
    )
    best_bonus_cp: float = setting(
        10.0, "bonus of the deeper search's best move over the best line, in centipawns", high=1000
    )
    sharp_share: float = setting(
        0.6, "share of Stockfish's own win rate in the WDL of a score; the rest is a wider curve", high=1
    )
    result_share: float = setting(
        0.08, "share of the game's result in the WDL target; not for positions next to a game", high=1
    )
    tablebases: tuple[str, ...] = setting(
        (), "folders of Syzygy tables; positions in them get their WDL", low=1
    )
    next_share: float = setting(0.2, "lambda of the mean over the labels of the following plies", high=0.99)
    short_term_decay: float = setting(
        0.85, "lambda for the short-term head, without the position's own label", high=0.99
    )


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Shape of a network that does not start as a copy."""

    start: str = setting(
        "",
        "network to start from: a file, wavefront-cpu or wavefront-gpu; its shape replaces the shape below",
    )
    revive: bool = setting(False, "restart the dead feed-forward units of start (0 for every position)")
    width: int = setting(128, "channels per square", low=8, high=4096)
    layers: int = setting(8, "encoder layers", low=1, high=100)
    heads: int = setting(
        4, "attention heads per layer; the gpu backend is fastest at a depth of 32 per head", low=1, high=256
    )
    ffn: int = setting(256, "width of the feed-forward layers", low=8, high=16384)
    dense_embedding: int = setting(
        16, "channels that each square gets from the whole board; 0: none", high=4096
    )
    smolgen_hidden: int = setting(16, "smolgen: channels per square; 0: no smolgen", high=1024)
    smolgen_dense: int = setting(128, "smolgen: width of the position's summary", low=1, high=4096)
    smolgen_gen: int = setting(64, "smolgen: width of each head's part", low=1, high=4096)
    policy_width: int = setting(128, "width of the policy's queries and keys", low=8, high=4096)
    value_channels: int = setting(32, "channels per square in the value head", low=1, high=1024)
    value_hidden: int = setting(128, "width of the value head's hidden layer", low=1, high=4096)
    activation: str = setting("mish", "default activation", choices=("mish", "relu"))
    ffn_activation: str = setting(
        "relu_squared", "activation of the feed-forward layers", choices=ACTIVATIONS
    )
    smolgen_activation: str = setting("swish", "activation of smolgen", choices=ACTIVATIONS)
    input_format: str = setting("1", "number of lc0's input encoding", choices=INPUT_FORMATS)


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Weights of the losses. The heads after moves_left exist only in training."""

    policy: float = setting(1.0, "weight of the policy: cross entropy over the legal moves", high=100)
    value: float = setting(1.2, "weight of WDL: cross entropy", high=100)
    moves_left: float = setting(
        0.1, "weight of moves left: Huber loss of the plies to the end, in units of 20", high=100
    )
    soft_policy: float = setting(
        4.0, "weight of a second policy, for the target at a high temperature (training only)", high=100
    )
    soft_temperature: float = setting(4.0, "temperature of that second policy", low=1, high=100)
    short_term: float = setting(0.3, "weight of the WDL of the following plies (training only)", high=100)
    value_bins: float = setting(
        0.0,
        "weight of the expected score as a distribution over 32 bins (training only); 0: no such head",
        high=100,
    )
    value_error: float = setting(
        0.1, "weight of the squared error of q: Huber loss (training only)", high=100
    )


@dataclass(frozen=True, slots=True)
class OptimiserSettings:
    """Muon for the matrices of the layers, AdamW for everything else."""

    batch: int = setting(4096, "positions per step, over all processes", low=1, high=UNREACHED)
    muon_rate: float = setting(0.012, "learning rate of Muon, for a square matrix", high=10)
    muon_momentum: float = setting(0.95, "momentum of Muon (Nesterov)", high=0.9999)
    adam_rate: float = setting(0.0015, "learning rate of AdamW", high=10)
    adam_beta1: float = setting(0.9, "AdamW's decay of the mean of the gradients", high=0.9999)
    adam_beta2: float = setting(0.98, "AdamW's decay of the mean of the squared gradients", high=0.99999)
    weight_decay: float = setting(
        0.03, "weight decay of all matrices, in units of the learning rate", high=10
    )
    dead_slope: float = setting(
        0.0,
        "slope of relu and relu_squared in the gradient of nearly dead feed-forward units (0 on 99.9 "
        "% of a batch's squares), so that they recover; 0: the exact gradient",
        high=1,
    )
    clip: float = setting(10.0, "maximum norm of the gradient", low=1e-6, high=1e9)
    ema: float = setting(
        0.9995, "decay per step of the mean of the weights; the mean is exported", high=0.999999
    )


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Length of the run and its learning rate, which rises, stays constant, and falls linearly to zero."""

    minutes: float = setting(0.0, "length of the run in minutes of training; 0: use positions", high=1e7)
    positions: int = setting(
        100_000_000, "length of the run in positions, if minutes is 0", low=1, high=10**14
    )
    warmup_steps: int = setting(300, "steps in which the learning rate rises", high=UNREACHED)
    decay: float = setting(0.3, "final share of the run in which the learning rate falls", high=1)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Devices and processes. Only seed and precision change the result."""

    device: str = setting(
        "auto", "device to train on; cuda includes AMD GPUs", choices=("auto", "cpu", "cuda")
    )
    processes: int = setting(0, "number of processes, one per GPU; 0: one for every GPU", high=1024)
    precision: str = setting(
        "auto", "precision of training; auto: bf16 on a GPU, otherwise fp32", choices=("auto", "bf16", "fp32")
    )
    compile: bool = setting(True, "compile the training step with torch.compile (on a GPU)")
    attention: str = setting(
        "auto",
        "attention; explicit: matrix products and a softmax; kernel: a Triton kernel for boards; "
        "auto: the kernel if possible",
        choices=("auto", "kernel", "explicit"),
    )
    threads: int = setting(
        0, "threads that read positions, and compute if there is no GPU; 0: one per core", high=1024
    )
    seed: int = setting(1, "random seed", high=2**31)
    checkpoint_s: float = setting(120.0, "seconds between checkpoints", low=1, high=1e7)
    report_s: float = setting(10.0, "seconds between lines of metrics.jsonl", low=0.1, high=1e7)
    validate_s: float = setting(60.0, "seconds between measurements on the held-out games", low=1, high=1e7)


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training run. output: folder for checkpoint, metrics and network."""

    output: str = setting("runs/network", "folder of the run")
    data: DataSettings = field(default_factory=DataSettings)
    targets: TargetSettings = field(default_factory=TargetSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    losses: LossSettings = field(default_factory=LossSettings)
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the result, as JSON data. Only equal ones can be resumed.

        The run's length and its interval of checking for shards may change.
        """
        data = {part.name: asdict(getattr(self, part.name)) for part in fields(self) if part.name != "output"}
        data["run"] = {name: data["run"][name] for name in ("seed", "precision")}
        del data["schedule"]["minutes"], data["schedule"]["positions"], data["data"]["follow_s"]
        identity: dict[str, Any] = json.loads(json.dumps(data))
        return identity


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """Settings of the loop. configs/loop.toml shows every key."""

    start: str = setting("wavefront-cpu", "network to start with: a file, wavefront-cpu or wavefront-gpu")
    output: str = setting(
        "runs/loop", "folder of the loop: best.pb.gz, data, journal and a folder for each generation"
    )
    generations: int = setting(0, "number of generations; 0: no limit", high=UNREACHED)
    losses: int = setting(
        2, "end after this number of generations in a row that are not promoted; 0: never", high=UNREACHED
    )
    backend: str = setting(
        "", "backend of all searches, such as gpu:device=all for several GPUs; empty: the fastest device"
    )
    data: tuple[str, ...] = setting((), "folders and files of further shards to train on", low=1)
    annotate_nodes: int = setting(
        32,
        "nodes of the searches that annotate the shards of data, and self-play with fewer visits; 0: none",
        high=UNREACHED,
    )
    annotate_positions: int = setting(
        1_000_000,
        "positions of data that each generation annotates with the best network, those annotated longest ago"
        " first",
        low=1,
        high=10**12,
    )
    selfplay: str = setting(
        "", "settings file of self-play, such as configs/selfplay.toml; empty: its defaults"
    )
    games: int = setting(150_000, "self-play games per generation; 0: none", high=UNREACHED)
    nodes: int = setting(8, "visits per move of self-play", low=1, high=UNREACHED)
    train: str = setting(
        "configs/train-next.toml",
        "settings file of training; the loop sets data, start, output, prior and its nodes",
    )
    passes: float = setting(
        1.0,
        "length of the training in passes over its positions; more memorise them; 0: that of the file",
        high=1000,
    )
    window: int = setting(10_000_000, "number of newest positions to train on", low=1, high=10**12)
    gate_nodes: int = setting(400, "visits per move in the gate", low=1, high=UNREACHED)
    gate_games: int = setting(1000, "maximum number of games in the gate", low=2, high=UNREACHED)
    gate_clock: str = setting(
        "3+0.03", "clock of a second gate, which the network must pass, too; empty: none"
    )
    sprt: str = setting("elo0=0,elo1=10", "SPRT of the gates; a network is promoted if both accept H1")
    match: tuple[str, ...] = setting((), "further arguments of the gate's match", low=1)


def with_defaults(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an earlier version's identity; newer settings get defaults, which keep old behaviour."""
    known = TrainConfig().identity()
    return {
        name: known[name] | {key: value for key, value in part.items() if key in known[name]}
        for name, part in identity.items()
    }


def train_config(document: Mapping[str, Any], source: str) -> TrainConfig:
    """Return the run that TOML tables describe. source: name of the file for messages.

    Raises SettingsError that names the key.
    """
    config = Table(source, document).whole(TrainConfig)
    model = config.model
    if not model.start and model.width % model.heads:
        raise SettingsError(f"{source}: [model]: width {model.width} is no multiple of heads {model.heads}")
    if not config.output.strip():
        raise SettingsError(f"{source}: output is the name of a folder, not empty")
    return config

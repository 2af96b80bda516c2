# SPDX-License-Identifier: GPL-3.0-or-later
"""Every option of the engine, in one table: the fields of `Options`.

It defines the UCI `option` lines, the TOML file (`configs/engine.toml`) and the command-line flags
(option_flags.py). It also defines the keyword arguments of `engine.Engine` and the parameters of the search
core.
It is imported before `uciok`, so it must import quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from protocol.common.settings.spec import (
    Setting,
    SettingsError,
    SettingsGroup,
    Value,
    setting,
    settings_of,
    shown,
    unknown,
)

OptionError = SettingsError
"""An option is unknown or a value is invalid. The message names both."""


def _option(
    name: str,
    default: Value,
    help: str,
    bounds: tuple[float, float] = (0, 0),
    *,
    choices: tuple[str, ...] = (),
    section: str = "",
    advanced: bool = False,
    reader: Callable[[str], object] | None = None,
) -> Any:
    """Return a row of the table. name: the UCI name. bounds: inclusive range of a number. section: starts
    one. reader: raises SettingsError for an invalid text."""
    low, high = bounds
    return setting(
        default,
        help,
        title=name,
        section=section,
        low=low,
        high=high,
        choices=choices,
        advanced=advanced,
        reader=reader,
    )


_advanced = partial(_option, advanced=True)


def _addresses(text: str) -> object:
    from protocol.connections.address_list import parse_addresses

    return parse_addresses(text)


def _contempt(text: str) -> object:
    from engine.options.contempt import parse_contempt

    return parse_contempt(text)


def _book(text: str) -> object:
    from pathlib import Path

    if text and not Path(text).is_file():
        raise OptionError(f"{shown(text)} is not a file" if Path(text).exists() else f"no file {shown(text)}")
    if text and not Path(text).stat().st_size:
        raise OptionError(f"{shown(text)} is empty: make it again, or name none")
    return text


def _backend(text: str) -> object:
    from engine.options.lc0_names import is_backend_of_lc0

    if is_backend_of_lc0(text):
        raise OptionError(f"{text.strip()} is a backend of lc0; use auto, gpu or onnx")
    return text


@dataclass(frozen=True, slots=True)
class Options(SettingsGroup):
    """The value of every option. Immutable: `changed` returns a copy with other values.

    An option that shares its name with a field of the core's SearchParams sets that parameter.
    """

    noun = "option"

    weights: str = _option(
        "WeightsFile",
        "",
        "network file in lc0's format, wavefront-cpu, wavefront-gpu or a name of `wavefront get`; empty: "
        "wavefront-gpu if a GPU is used, otherwise wavefront-cpu",
        section="evaluator",
    )
    backend: str = _option(
        "Backend",
        "auto",
        "what computes the network; auto uses the fastest device; see `wavefront-evaluator serve --help`",
        reader=_backend,
    )
    evaluator: str = _option(
        "Evaluator",
        "",
        "address of a running evaluator (tcp://… or ipc://…), or several separated by commas; one "
        "search uses the first healthy one, many searches use all; empty: start a private evaluator",
        reader=_addresses,
    )
    evaluator_keys: str = _advanced(
        "EvaluatorKeys",
        "",
        "folder with this user's key pair and the public keys of evaluators on other machines; empty:"
        " the user's configuration folder",
    )
    evaluator_compression: str = _advanced(
        "EvaluatorCompression",
        "auto",
        "compress the positions sent to an evaluator; auto: only to other machines; needs Python 3.14"
        " or the extra `compression` on both sides",
        choices=("auto", "on", "off"),
    )
    threads: int = _option(
        "Threads", 0, "CPU threads of the private evaluator's backend; 0 lets it choose", (0, 256)
    )
    policy_head: str = _advanced(
        "PolicyHead", "", "policy head of a network that has several; empty: its first"
    )
    value_head: str = _advanced("ValueHead", "", "value head of a network that has several; empty: its first")
    history_fill: str = _advanced(
        "HistoryFill",
        "fen_only",
        "how to fill the positions before the start; no: leave them empty; fen_only: repeat the start"
        " unless it is the initial position; always: repeat the start",
        choices=("no", "fen_only", "always"),
    )

    minibatch_size: int = _advanced(
        "MinibatchSize",
        0,
        "positions per batch; 0 chooses by the evaluator's speed and the size of the tree",
        (0, 1024),
        section="batching",
    )
    batches_in_flight: int = _advanced("BatchesInFlight", 2, "maximum number of batches in flight", (1, 8))
    visits_per_position: int = _advanced(
        "VisitsPerPosition",
        0,
        "minimum tree visits per position in flight; 0 chooses by the evaluator's speed",
        (0, 1000000),
    )
    in_flight_factor: float = _advanced(
        "InFlightFactor",
        -1.0,
        "maximum positions in flight, per square root of the tree's visits; 0: no such limit; -1 "
        "chooses by the limits of the search",
        (-1.0, 1000.0),
    )
    second_batch: int = _advanced(
        "SecondBatch",
        0,
        "minimum size of a batch that is sent while another one is in flight; 0 chooses by the "
        "evaluator's speed",
        (0, 1024),
    )
    look_ahead: int = _advanced(
        "LookAhead",
        -1,
        "size to which a batch is filled with positions that the search will probably want next; 0: "
        "not filled; -1 chooses by the evaluator's speed",
        (-1, 1024),
    )
    max_collision_visits: int = _advanced(
        "MaxCollisionVisits",
        80000,
        "maximum visits that a batch may lose to collisions (positions already in flight)",
        (1, 1000000),
    )
    visits_per_collision: int = _advanced(
        "VisitsPerCollision",
        512,
        "minimum tree visits per visit that a batch loses to collisions; it also loses at most a third of "
        "the square root of the tree's visits; 0: neither limit",
        (0, 1000000),
    )
    max_collision_events: int = _advanced(
        "MaxCollisionEvents", 917, "maximum number of collisions in a batch", (1, 65536)
    )
    hash: int = _option(
        "Hash",
        200,
        "size of the evaluation cache in megabytes; 200 hold 2 million positions; the default takes at most "
        "an eighth of the tree's memory, but at least 64",
        (1, 262144),
    )
    tree_memory: int = _option(
        "RamLimitMb",
        2048,
        "maximum size of the search tree in megabytes; a full tree is pruned; the default takes at most a "
        "quarter of the memory of the machine or container",
        (16, 1048576),
    )
    cache_history_length: int = _advanced(
        "CacheHistoryLength", 0, "number of earlier positions that a cached evaluation must share", (0, 7)
    )

    network_constants: bool = _advanced(
        "NetworkConstants",
        True,
        "use search constants tuned for the network, if there are any; options that you change keep your "
        "values",
        section="search",
    )
    cpuct: float = _advanced(
        "CPuct", 1.745, "exploration constant of PUCT; higher values try more moves", (0, 100)
    )
    cpuct_base: float = _advanced(
        "CPuctBase", 38739.0, "number of visits over which exploration grows", (1, 1e9)
    )
    cpuct_factor: float = _advanced(
        "CPuctFactor", 3.894, "how much exploration grows; 0: not at all", (0, 1000)
    )
    root_has_own_cpuct: bool = _advanced(
        "RootHasOwnCpuctParams", False, "use the three CPuct…AtRoot values at the root"
    )
    cpuct_at_root: float = _advanced("CPuctAtRoot", 1.745, "CPuct at the root", (0, 100))
    cpuct_base_at_root: float = _advanced("CPuctBaseAtRoot", 38739.0, "CPuctBase at the root", (1, 1e9))
    cpuct_factor_at_root: float = _advanced("CPuctFactorAtRoot", 3.894, "CPuctFactor at the root", (0, 1000))
    fpu_strategy: str = _advanced(
        "FpuStrategy",
        "reduction",
        "value of an unvisited move; reduction: its parent's value less FpuValue times the square "
        "root of the visited moves' total prior; absolute: FpuValue",
        choices=("reduction", "absolute"),
    )
    fpu_value: float = _advanced("FpuValue", 0.33, "parameter of FpuStrategy", (-100, 100))
    fpu_strategy_at_root: str = _advanced(
        "FpuStrategyAtRoot",
        "same",
        "FpuStrategy at the root; same: as elsewhere, without FpuValueAtRoot",
        choices=("same", "reduction", "absolute"),
    )
    fpu_value_at_root: float = _advanced("FpuValueAtRoot", 1.0, "FpuValue at the root", (-100, 100))
    policy_temperature: float = _advanced(
        "PolicyTemperature",
        1.359,
        "divisor of the network's policy logits; higher values make the priors more equal",
        (0.1, 10),
    )
    policy_temperature_at_root: float = _advanced(
        "PolicyTemperatureAtRoot", 0.0, "PolicyTemperature at the root; 0: as elsewhere", (0, 10)
    )
    draw_score: float = _advanced(
        "DrawScore", 0.0, "value of a draw for White, from -1 (loss) to 1 (win)", (-1, 1)
    )
    two_fold_draws: bool = _advanced(
        "TwoFoldDraws", True, "count the first repetition inside the tree as a draw"
    )
    sticky_endgames: bool = _advanced(
        "StickyEndgames", True, "keep proven wins, losses and draws in the tree"
    )
    known_draws: str = _advanced(
        "KnownDraws",
        "off",
        "limit a position's value by known draws; proven: by its proven bounds; repetition: by draws "
        "by repetition, too",
        choices=("off", "proven", "repetition"),
    )
    transposition_visits: int = _advanced(
        "TranspositionVisits",
        16,
        "minimum visits for reusing a transposition's value; 0 disables reuse",
        (0, 32768),
    )
    subtree_value_bias: float = _advanced(
        "SubtreeValueBias",
        0.6,
        "share of the network's mean error in positions searched after the same move by which its values are "
        "corrected; 0: off",
        (0, 2),
    )
    moves_left_max_effect: float = _advanced(
        "MovesLeftMaxEffect", 0.0345, "maximum change of a value by the expected length of the game", (0, 1)
    )
    moves_left_threshold: float = _advanced(
        "MovesLeftThreshold", 0.8, "value of a position above which the length of the game matters", (0, 1)
    )
    moves_left_slope: float = _advanced("MovesLeftSlope", 0.0027, "effect of one ply on the value", (0, 1))
    moves_left_constant_factor: float = _advanced(
        "MovesLeftConstantFactor", 0.0, "constant part of the effect", (-1, 1)
    )
    moves_left_scaled_factor: float = _advanced(
        "MovesLeftScaledFactor", 1.6521, "part of the effect that is proportional to the value", (-2, 2)
    )
    moves_left_quadratic_factor: float = _advanced(
        "MovesLeftQuadraticFactor",
        -0.6521,
        "part of the effect that is proportional to the square of the value",
        (-2, 2),
    )
    smart_pruning_factor: float = _advanced(
        "SmartPruningFactor",
        1.33,
        "stop when the second move cannot catch up in the remaining visits divided by this factor; 0 "
        "never stops early",
        (0, 10),
    )
    smart_pruning_margin: float = _advanced(
        "SmartPruningMargin",
        0.02,
        "under a clock, stop when all other moves that could be played (ValueChoiceShare) are worse "
        "by this value; 2 disables this rule",
        (0, 2),
    )
    minimum_kld_gain_per_node: float = _advanced(
        "MinimumKLDGainPerNode",
        0.0,
        "stop when each of the last KLDGainAverageInterval visits changed the distribution over the "
        "moves by less than this; 0 disables this rule",
        (0, 1),
    )
    kld_gain_average_interval: int = _advanced(
        "KLDGainAverageInterval", 100, "visits between two checks of MinimumKLDGainPerNode", (1, 10000000)
    )

    syzygy_path: str = _option(
        "SyzygyPath",
        "",
        "folders with Syzygy tablebases (.rtbw, .rtbz), separated by colons (Windows: semicolons), in "
        "addition to the included ones of up to 4 men; <none> disables all tablebases",
        section="tablebases",
    )
    syzygy_50_move_rule: bool = _advanced(
        "Syzygy50MoveRule", True, "count tablebase wins that the 50-move rule ends as draws; false: as wins"
    )
    syzygy_fast_play: bool = _advanced(
        "SyzygyFastPlay",
        False,
        "in positions that the tablebases know, search only the shortest winning moves",
    )

    book_file: str = _option(
        "BookFile", "", "Polyglot opening book to play from; empty: none", section="book", reader=_book
    )
    book_depth: int = _option("BookDepth", 255, "last full move that is played from the book", (1, 1000))
    book_selection: str = _advanced(
        "BookSelection",
        "weighted",
        "best: the move of the largest weight; weighted: a random move in proportion to its weight",
        choices=("weighted", "best"),
    )

    limit_strength: bool = _option(
        "UCI_LimitStrength",
        False,
        "play games at the strength of UCI_Elo; analysis keeps full strength",
        section="strength",
    )
    elo: int = _option(
        "UCI_Elo", 1500, "strength with UCI_LimitStrength, on the scale of Stockfish 15.1", (800, 2800)
    )
    skill_level: int = _option(
        "Skill Level", 20, "strength without UCI_LimitStrength; 20: full strength", (0, 20)
    )
    human_play: bool = _option(
        "HumanPlay",
        False,
        "draw moves from the policy of a network that imitates people, such as maia-1500 (`wavefront get`)",
    )
    human_temperature: float = _advanced(
        "HumanTemperature", 1.0, "temperature of HumanPlay; 0 plays the most probable move", (0, 10)
    )
    human_top_p: float = _advanced(
        "HumanTopP", 0.95, "sum of the largest probabilities from which HumanPlay draws", (0.01, 1)
    )
    human_weights: str = _advanced(
        "HumanWeightsFile", "", "second network of HumanPlay, whose policy is mixed in; empty: none"
    )
    human_mix: float = _advanced("HumanMix", 0.5, "share of HumanWeightsFile in the mixed policy", (0, 1))
    human_repertoire: int = _advanced(
        "HumanRepertoire",
        0,
        "number of a repertoire: HumanPlay answers each opening position with one move in all games; 0: off",
        (0, 2**31 - 1),
    )
    human_time: bool = _option(
        "HumanTime", False, "with a clock, limited levels and HumanPlay take the time that a person would"
    )

    contempt_mode: str = _advanced(
        "ContemptMode",
        "play",
        "side whose advantage Contempt is; play: the engine's side (none in analysis); disable: no side's",
        choices=("play", "white_side_analysis", "black_side_analysis", "disable"),
        section="contempt",
    )
    contempt: str = _advanced(
        "Contempt",
        "",
        "Elo by which the opponent is weaker, or NAME=Elo,… chosen by UCI_Opponent; empty: UCI_RatingAdv",
        reader=_contempt,
    )
    contempt_max_value: float = _advanced(
        "ContemptMaxValue", 420.0, "maximum contempt that is used, in Elo", (0, 10000)
    )
    wdl_calibration_elo: float = _advanced(
        "WDLCalibrationElo",
        0.0,
        "own Elo at rapid time controls, which determines the draw rate; 0 leaves win, draw and loss "
        "unchanged",
        (0, 10000),
    )
    wdl_contempt_attenuation: float = _advanced(
        "WDLContemptAttenuation",
        1.0,
        "factor of Contempt: 1 for realistic analysis, 0.5 to 0.6 for results",
        (-10, 10),
    )
    wdl_max_s: float = _advanced(
        "WDLMaxS", 1.4, "maximum width of a position's distribution of results", (0, 10)
    )
    wdl_eval_objectivity: float = _advanced(
        "WDLEvalObjectivity", 1.0, "share of Contempt that is removed from the scores shown", (0, 1)
    )
    wdl_draw_rate_target: float = _advanced(
        "WDLDrawRateTarget",
        0.0,
        "draw rate in equal positions, if WDLCalibrationElo is 0; 0: the network's own",
        (0, 0.999),
    )
    wdl_draw_rate_reference: float = _advanced(
        "WDLDrawRateReference", 0.5, "the network's own draw rate in equal positions", (0.001, 0.999)
    )
    wdl_book_exit_bias: float = _advanced(
        "WDLBookExitBias",
        0.65,
        "centre of the evaluation of positions after the opening; the initial position has 0.2",
        (-2, 2),
    )
    opponent: str = _advanced("UCI_Opponent", "", "title, Elo, kind and name of the opponent; set by the GUI")
    rating_advantage: float = _advanced(
        "UCI_RatingAdv", 0.0, "Elo by which the opponent is weaker; set by the GUI", (-10000, 10000)
    )

    value_choice_share: float = _advanced(
        "ValueChoiceShare",
        0.2,
        "share of the most visits that a move needs to be played; among such moves the best value wins",
        (0.01, 1),
        section="choice",
    )
    value_choice_deviations: float = _advanced(
        "ValueChoiceDeviations",
        2.0,
        "standard deviations of the mean that are subtracted from that value, so that few visits count less",
        (0, 100),
    )
    temperature: float = _advanced(
        "Temperature",
        0.0,
        "play a random move, weighted by visits to the power 1/Temperature; 0 plays the best",
        (0, 100),
    )
    temp_decay_moves: int = _advanced(
        "TempDecayMoves", 0, "moves over which the temperature falls to 0; 0 keeps it constant", (0, 640)
    )
    temp_decay_delay_moves: int = _advanced(
        "TempDecayDelayMoves", 0, "moves before the temperature starts to fall", (0, 100)
    )
    temp_cutoff_move: int = _advanced(
        "TempCutoffMove", 0, "move from which the temperature is TempEndgame; 0: none", (0, 1000)
    )
    temp_endgame: float = _advanced(
        "TempEndgame",
        0.0,
        "temperature from TempCutoffMove on, and lower limit of the decay",
        (0, 100),
    )
    temp_value_cutoff: float = _advanced(
        "TempValueCutoff",
        100.0,
        "maximum loss of winning chance by a random move, in percent",
        (0, 100),
    )
    temp_visit_offset: float = _advanced(
        "TempVisitOffset",
        0.0,
        "number added to the visits of every move when a random one is chosen",
        (-1000, 1000),
    )
    dirichlet_noise_epsilon: float = _advanced(
        "DirichletNoiseEpsilon", 0.0, "share of Dirichlet noise in the priors of the root", (0, 1)
    )
    dirichlet_noise_alpha: float = _advanced(
        "DirichletNoiseAlpha",
        0.3,
        "concentration of that noise; low values give most of it to few moves",
        (0.001, 1000),
    )
    nodes_as_playouts: bool = _advanced(
        "NodesAsPlayouts",
        False,
        "count only a search's own visits towards node limits, not those kept from earlier searches",
    )

    move_overhead_ms: int = _option(
        "MoveOverheadMs",
        100,
        "milliseconds reserved for delays between engine and GUI; measured delays are added",
        (0, 10000),
        section="time",
    )
    slowmover: float = _option("Slowmover", 1.0, "factor of the time spent on a move", (0.01, 10))
    ponder: bool = _option("Ponder", False, "allow the engine to think on the opponent's time")

    multipv: int = _option("MultiPV", 1, "number of lines shown", (1, 500), section="output")
    chess960: bool = _option("UCI_Chess960", False, "play Chess960: castling is written king takes rook")
    show_wdl: bool = _option("UCI_ShowWDL", False, "show win, draw and loss in thousandths with each score")
    show_moves_left: bool = _advanced(
        "UCI_ShowMovesLeft", False, "show the expected number of moves to the end of the game"
    )
    score_type: str = _advanced(
        "ScoreType",
        "centipawn",
        "unit of `score cp`; centipawn: lc0's; centipawn_with_drawscore: with DrawScore; "
        "centipawn_2019, centipawn_2018: lc0's of these years; win_percentage: times 100; Q, W-L: "
        "times 10,000; WDL_mu: 100 if a win is as likely as not",
        choices=(
            "centipawn",
            "centipawn_with_drawscore",
            "centipawn_2019",
            "centipawn_2018",
            "win_percentage",
            "Q",
            "W-L",
            "WDL_mu",
        ),
    )
    per_pv_counters: bool = _advanced(
        "PerPVCounters",
        False,
        "count in `nodes` of a line the visits of its first move, not those of the search",
    )
    show_eps: bool = _advanced("UCI_ShowEPS", False, "show evaluations per second after nodes per second")
    verbose_move_stats: bool = _advanced(
        "VerboseMoveStats", False, "print the statistics of every root move before the best move"
    )
    log_live_stats: bool = _advanced(
        "LogLiveStats",
        False,
        "write the statistics of the root moves to LogFile with every report; with VerboseMoveStats, "
        "to the GUI",
    )
    log_file: str = _advanced("LogFile", "", "file to which all input and output is appended")

    def with_uci(self, name: str, text: str) -> Self:
        """Return a copy with one option set from a text. name: UCI name in any case. Raises OptionError."""
        option = _BY_UCI_NAME.get(name.strip().lower())
        if option is None:
            from engine.options.lc0_names import replacement

            if instead := replacement(name):
                raise OptionError(f"{name.strip()} is an option of lc0; {instead}")
            raise unknown("option", name.strip(), [option.title for option in OPTIONS])
        return self.parsed({option.name: text})


OPTIONS: tuple[Setting, ...] = tuple(settings_of(Options).values())
"""The table, by sections. UCI lists advanced options after the others."""

ALIASES: Mapping[str, Setting] = {
    "Move Overhead": next(option for option in OPTIONS if option.name == "move_overhead_ms")
}
"""Further UCI names of options. They are listed, because bots set other engines' names only if listed."""

_BY_UCI_NAME = {
    **{option.title.lower(): option for option in OPTIONS},
    **{name.lower(): option for name, option in ALIASES.items()},
}


class AliasValues:
    """The aliases' values as a GUI shows them: the default until an alias is set.

    Scid sets every listed option at each start. The default of an alias must not replace the value that the
    user gave the option by its own name.
    """

    def __init__(self) -> None:
        self._values = {name.lower(): option.default for name, option in ALIASES.items()}

    def repeated(self, name: str, options: Options) -> bool:
        """Record an alias's new value. Return True if it equals the old one and must change nothing.

        name: a UCI name in any case; False if it is no alias. options: the result of `Options.with_uci`.
        """
        alias = name.strip().lower()
        if alias not in self._values:
            return False
        before = self._values[alias]
        self._values[alias] = getattr(options, _BY_UCI_NAME[alias].name)
        return bool(self._values[alias] == before)

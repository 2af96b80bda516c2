"""Every option of the engine, in one table: the fields of `Options`.

The UCI `option` lines, the TOML file (`configs/engine.toml`) and the `--flags` of the command line
(option_flags.py), the keyword arguments of `engine.Engine` and the parameters of the core's search are all
made from it. It is imported before `uciok`: nothing heavy here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from protocol.settings.spec import Setting, SettingsError, SettingsGroup, Value, setting, settings_of, unknown

OptionError = SettingsError
"""An option that does not exist or a value that it cannot take. The message names both."""


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
    """A row of the table. name: the UCI name. bounds: of a number, inclusive. section: begins one. reader:
    raises SettingsError for a text that it cannot read."""
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
    from protocol.address_list import parse_addresses

    return parse_addresses(text)


def _contempt(text: str) -> object:
    from engine.settings.contempt import parse_contempt

    return parse_contempt(text)


def _time_manager(text: str) -> object:
    from engine.settings.time_managers import parse_time_manager

    return parse_time_manager(text)


@dataclass(frozen=True, slots=True)
class Options(SettingsGroup):
    """The value of every option. Immutable: `changed` gives a copy with other values.

    An option with the name of a field of the core's SearchParams is that parameter.
    """

    noun = "option"

    weights: str = _option(
        "WeightsFile",
        "",
        "network file in lc0's format, wavefront-cpu or wavefront-gpu; empty is the latter where a GPU "
        "computes it, else the former",
        section="evaluator",
    )
    backend: str = _option(
        "Backend",
        "auto",
        "what computes the network: auto takes the fastest; see `python -m evaluator serve --help`",
    )
    evaluator: str = _option(
        "Evaluator",
        "",
        "address of a running evaluator (tcp://… or ipc://…), or several with commas between, of which a "
        "search uses the first that is well, and many searches use all; empty starts one that ends with the "
        "engine",
        reader=_addresses,
    )
    evaluator_keys: str = _advanced(
        "EvaluatorKeys",
        "",
        "folder with the key pair for evaluators on other machines, and their public keys; empty is the "
        "user's configuration folder",
    )
    evaluator_compression: str = _advanced(
        "EvaluatorCompression",
        "auto",
        "compress positions on their way to the evaluator: auto does so where that is another machine; needs "
        "Python 3.14 or the extra `compression` on both sides",
        choices=("auto", "on", "off"),
    )
    threads: int = _option(
        "Threads", 0, "threads of the started evaluator's CPU backend; 0 lets it choose", (0, 256)
    )
    policy_head: str = _advanced(
        "PolicyHead", "", "policy head of a network that has several; empty is its first"
    )
    value_head: str = _advanced(
        "ValueHead", "", "value head of a network that has several; empty is its first"
    )
    history_fill: str = _advanced(
        "HistoryFill",
        "fen_only",
        "what stands for the positions before the start: nothing, the start again unless it is the initial "
        "position, or the start again always",
        choices=("no", "fen_only", "always"),
    )

    minibatch_size: int = _option(
        "MinibatchSize",
        0,
        "positions per batch; 0 chooses by the evaluator's speed and the size of the tree",
        (0, 1024),
        section="batching",
    )
    batches_in_flight: int = _advanced(
        "BatchesInFlight", 2, "batches sent before the first is awaited, at most", (1, 8)
    )
    visits_per_position: int = _advanced(
        "VisitsPerPosition",
        0,
        "visits that the tree has for each position in flight, at least; 0 chooses by the evaluator's speed",
        (0, 1000000),
    )
    under_way_factor: float = _advanced(
        "UnderWayFactor",
        -1.0,
        "positions in flight at most, for each square root of the tree's visits; 0 sets no such limit, -1 "
        "chooses by what limits the search",
        (-1.0, 1000.0),
    )
    second_batch: int = _advanced(
        "SecondBatch",
        0,
        "positions that a batch has at least which is sent while another is in flight; 0 chooses by the "
        "evaluator's speed",
        (0, 1024),
    )
    look_ahead: int = _advanced(
        "LookAhead",
        -1,
        "positions that a batch is filled to with those probably wanted next; -1 chooses by the evaluator's "
        "speed",
        (-1, 1024),
    )
    max_collision_visits: int = _advanced(
        "MaxCollisionVisits", 80000, "visits a batch may lose to positions already on their way", (1, 1000000)
    )
    visits_per_collision: int = _advanced(
        "VisitsPerCollision",
        512,
        "visits that the tree has for each that a batch may lose so, at least; 0 sets no such limit",
        (0, 1000000),
    )
    max_collision_events: int = _advanced(
        "MaxCollisionEvents", 917, "times a batch may run into a position already on its way", (1, 65536)
    )
    hash: int = _option("Hash", 64, "megabytes of the evaluation cache", (1, 262144))
    tree_memory: int = _option(
        "RamLimitMb",
        2048,
        "megabytes the search tree may take; a full tree forgets what matters least",
        (16, 1048576),
    )
    cache_history_length: int = _advanced(
        "CacheHistoryLength", 0, "earlier positions that a cached evaluation must share", (0, 7)
    )

    cpuct: float = _advanced(
        "CPuct", 1.745, "exploration: higher looks at more moves", (0, 100), section="search"
    )
    cpuct_base: float = _advanced("CPuctBase", 38739.0, "visits over which exploration grows", (1, 1e9))
    cpuct_factor: float = _advanced("CPuctFactor", 3.894, "how much exploration grows", (0, 1000))
    root_has_own_cpuct: bool = _advanced(
        "RootHasOwnCpuctParams", False, "use the three CPuct…AtRoot values at the root"
    )
    cpuct_at_root: float = _advanced("CPuctAtRoot", 1.745, "CPuct at the root", (0, 100))
    cpuct_base_at_root: float = _advanced("CPuctBaseAtRoot", 38739.0, "CPuctBase at the root", (1, 1e9))
    cpuct_factor_at_root: float = _advanced("CPuctFactorAtRoot", 3.894, "CPuctFactor at the root", (0, 1000))
    cpuct_deviation_scale: float = _advanced(
        "CPuctDeviationScale",
        0.0,
        "how much exploration follows the deviation of a position's values: with 1 it is proportional to it, "
        "with 0 it does not",
        (0, 1),
    )
    deviation_prior: float = _advanced(
        "DeviationPrior", 0.2, "deviation of values at which exploration is CPuct's", (0.001, 1)
    )
    deviation_prior_visits: float = _advanced(
        "DeviationPriorVisits", 4.0, "visits that DeviationPrior counts for in a position's own", (0, 1000)
    )
    fpu_strategy: str = _advanced(
        "FpuStrategy",
        "reduction",
        "value of an unvisited move: its parent's less FpuValue times the root of the visited moves' prior "
        "sum, or FpuValue itself",
        choices=("reduction", "absolute"),
    )
    fpu_value: float = _advanced("FpuValue", 0.33, "how pessimistic FpuStrategy is", (-100, 100))
    fpu_strategy_at_root: str = _advanced(
        "FpuStrategyAtRoot",
        "same",
        "FpuStrategy at the root; with `same`, FpuValueAtRoot is not used",
        choices=("same", "reduction", "absolute"),
    )
    fpu_value_at_root: float = _advanced("FpuValueAtRoot", 1.0, "FpuValue at the root", (-100, 100))
    policy_temperature: float = _advanced(
        "PolicyTemperature",
        1.359,
        "divides the network's logits: higher evens out the prior probabilities",
        (0.1, 10),
    )
    policy_temperature_at_root: float = _advanced(
        "PolicyTemperatureAtRoot", 0.0, "PolicyTemperature at the root; 0 takes that", (0, 10)
    )
    draw_score: float = _advanced(
        "DrawScore", 0.0, "value of a draw for White: -1 is a loss, 1 a win", (-1, 1)
    )
    two_fold_draws: bool = _advanced(
        "TwoFoldDraws", True, "count the first repetition inside the tree as a draw"
    )
    sticky_endgames: bool = _advanced("StickyEndgames", True, "remember proven wins, losses and draws")
    known_draws: str = _advanced(
        "KnownDraws",
        "off",
        "a position is worth no less than a draw that is proven for its side to move, or that it has by "
        "repetition, too",
        choices=("off", "proven", "repetition"),
    )
    noise_pruning_scale: float = _advanced(
        "NoisePruningScale",
        0.3,
        "visits beyond its prior's share count for a third where a move is so much worse than others, for "
        "less where it is worse still; 0 counts all in full",
        (0, 10),
    )
    transposition_visits: int = _advanced(
        "TranspositionVisits",
        16,
        "a position that was searched elsewhere with so many visits has the value of that search; 0 never",
        (0, 32768),
    )
    moves_left_max_effect: float = _advanced(
        "MovesLeftMaxEffect", 0.0345, "most that the game's expected length changes a value", (0, 1)
    )
    moves_left_threshold: float = _advanced(
        "MovesLeftThreshold", 0.8, "value of the position from which its length matters", (0, 1)
    )
    moves_left_slope: float = _advanced("MovesLeftSlope", 0.0027, "effect of one ply", (0, 1))
    moves_left_constant_factor: float = _advanced(
        "MovesLeftConstantFactor", 0.0, "share of the effect at any value", (-1, 1)
    )
    moves_left_scaled_factor: float = _advanced(
        "MovesLeftScaledFactor", 1.6521, "share of the effect in proportion to the value", (-2, 2)
    )
    moves_left_quadratic_factor: float = _advanced(
        "MovesLeftQuadraticFactor",
        -0.6521,
        "share of the effect in proportion to the value's square",
        (-2, 2),
    )
    smart_pruning_factor: float = _advanced(
        "SmartPruningFactor",
        1.33,
        "stop when the second move cannot catch up in the visits left over this factor; 0 never stops early",
        (0, 10),
    )
    smart_pruning_margin: float = _advanced(
        "SmartPruningMargin",
        0.02,
        "a move that might still be chosen for its value (ValueChoiceShare) is beaten if that is lower by "
        "this (-1 to 1), under a clock only; 2 lets none be",
        (0, 2),
    )
    minimum_kld_gain_per_node: float = _advanced(
        "MinimumKLDGainPerNode",
        0.0,
        "stop when the last KLDGainAverageInterval visits changed their distribution over the moves by less "
        "than this each; 0 never does",
        (0, 1),
    )
    kld_gain_average_interval: int = _advanced(
        "KLDGainAverageInterval", 100, "visits between two looks at that", (1, 10000000)
    )

    syzygy_path: str = _option(
        "SyzygyPath",
        "",
        "folders with Syzygy tablebases (.rtbw, .rtbz), separated by colons (Windows: semicolons)",
        section="tablebases",
    )
    syzygy_50_move_rule: bool = _advanced(
        "Syzygy50MoveRule", True, "tablebase wins that the 50-move rule ends are draws; off, they are wins"
    )
    syzygy_fast_play: bool = _advanced(
        "SyzygyFastPlay",
        False,
        "in positions that the tablebases know, search only winning moves with the shortest distance",
    )

    contempt_mode: str = _advanced(
        "ContemptMode",
        "play",
        "whose advantage Contempt is: the side's that plays (none in analysis), one side's, or nobody's",
        choices=("play", "white_side_analysis", "black_side_analysis", "disable"),
        section="contempt",
    )
    contempt: str = _advanced(
        "Contempt",
        "",
        "Elo by which the opponent is weaker, or NAME=Elo,… by UCI_Opponent; empty is UCI_RatingAdv",
        reader=_contempt,
    )
    contempt_max_value: float = _advanced("ContemptMaxValue", 420.0, "most of it that is used", (0, 10000))
    wdl_calibration_elo: float = _advanced(
        "WDLCalibrationElo",
        0.0,
        "own Elo at rapid, from which the rate of draws follows; 0 leaves win, draw and loss as they are",
        (0, 10000),
    )
    wdl_contempt_attenuation: float = _advanced(
        "WDLContemptAttenuation",
        1.0,
        "share of Contempt that counts: 1 for realistic analysis, 0.5 to 0.6 for results",
        (-10, 10),
    )
    wdl_max_s: float = _advanced(
        "WDLMaxS", 1.4, "widest distribution of results that a position is taken to have", (0, 10)
    )
    wdl_eval_objectivity: float = _advanced(
        "WDLEvalObjectivity", 1.0, "share of Contempt that is taken out of the scores shown", (0, 1)
    )
    wdl_draw_rate_target: float = _advanced(
        "WDLDrawRateTarget",
        0.0,
        "rate of draws in equal positions, if WDLCalibrationElo is 0; 0 leaves the network's",
        (0, 0.999),
    )
    wdl_draw_rate_reference: float = _advanced(
        "WDLDrawRateReference", 0.5, "the network's own rate of draws in equal positions", (0.001, 0.999)
    )
    wdl_book_exit_bias: float = _advanced(
        "WDLBookExitBias",
        0.65,
        "centre of the positions that games begin with; the initial position has 0.2",
        (-2, 2),
    )
    opponent: str = _advanced("UCI_Opponent", "", "title, Elo, kind and name of the opponent, from the GUI")
    rating_advantage: float = _advanced(
        "UCI_RatingAdv", 0.0, "Elo by which the opponent is weaker, from the GUI", (-10000, 10000)
    )

    value_choice_share: float = _advanced(
        "ValueChoiceShare",
        0.2,
        "the best move is the one of best value among those with at least this share of the most visits",
        (0.01, 1),
        section="choice",
    )
    value_choice_deviations: float = _advanced(
        "ValueChoiceDeviations",
        2.0,
        "that value is taken to be lower by so many deviations of its mean: few visits are worth less",
        (0, 100),
    )
    temperature: float = _advanced(
        "Temperature",
        0.0,
        "play a random move, by visits to the power 1/Temperature; 0 plays the best",
        (0, 100),
    )
    temp_decay_moves: int = _advanced(
        "TempDecayMoves", 0, "moves over which the temperature falls to nothing; 0 keeps it", (0, 640)
    )
    temp_decay_delay_moves: int = _advanced(
        "TempDecayDelayMoves", 0, "moves before the temperature begins to fall", (0, 100)
    )
    temp_cutoff_move: int = _advanced(
        "TempCutoffMove", 0, "move from which the temperature is TempEndgame; 0 is none", (0, 1000)
    )
    temp_endgame: float = _advanced(
        "TempEndgame",
        0.0,
        "the temperature from TempCutoffMove on, and the least that decay leaves",
        (0, 100),
    )
    temp_value_cutoff: float = _advanced(
        "TempValueCutoff",
        100.0,
        "largest loss of winning chance, in percent, that a random move may cost",
        (0, 100),
    )
    temp_visit_offset: float = _advanced(
        "TempVisitOffset", 0.0, "added to the visits of every move when a random one is chosen", (-1000, 1000)
    )
    dirichlet_noise_epsilon: float = _advanced(
        "DirichletNoiseEpsilon", 0.0, "share of noise in the prior probabilities of the root", (0, 1)
    )
    dirichlet_noise_alpha: float = _advanced(
        "DirichletNoiseAlpha",
        0.3,
        "evenness of that noise: with a small one few moves get most of it",
        (0.001, 1000),
    )
    nodes_as_playouts: bool = _advanced(
        "NodesAsPlayouts",
        False,
        "limits of nodes count the search's own visits only, not those kept from earlier ones",
    )

    move_overhead_ms: int = _option(
        "MoveOverheadMs",
        100,
        "milliseconds kept back for the way between engine and GUI, and more where more is measured",
        (0, 10000),
        section="time",
    )
    time_manager: str = _advanced(
        "TimeManager",
        "adaptive",
        "what shares out the clock: adaptive, or lc0's legacy, smooth, simple, alphazero; with parameters as "
        "in legacy(slowmover=1.1)",
        reader=_time_manager,
    )
    slowmover: float = _option("Slowmover", 1.0, "multiplies the time spent on a move", (0.01, 10))
    ponder: bool = _option("Ponder", False, "the GUI may let the engine think on the opponent's time")

    multipv: int = _option("MultiPV", 1, "number of lines shown", (1, 500), section="output")
    chess960: bool = _option("UCI_Chess960", False, "play Chess960: castling is written king takes rook")
    show_wdl: bool = _option("UCI_ShowWDL", False, "show win, draw and loss in thousandths with each score")
    show_moves_left: bool = _advanced(
        "UCI_ShowMovesLeft", False, "show how many moves the game is expected to last"
    )
    score_type: str = _advanced(
        "ScoreType",
        "centipawn",
        "unit of `score cp`: centipawns (as lc0 shows them, with DrawScore in them, or as in earlier years), "
        "percent won (times 100), q or win minus loss (times 10000), or 100 times the position of the "
        "evaluation's centre between loss and win",
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
        "PerPVCounters", False, "`nodes` of a line are the visits of its first move, not those of the search"
    )
    show_eps: bool = _advanced("UCI_ShowEPS", False, "show evaluations per second after nodes per second")
    verbose_move_stats: bool = _advanced(
        "VerboseMoveStats", False, "print the statistics of every root move before the best move"
    )
    log_live_stats: bool = _advanced(
        "LogLiveStats",
        False,
        "write these statistics to LogFile with every report; with VerboseMoveStats, to the GUI",
    )
    log_file: str = _advanced("LogFile", "", "file to append all input and output to")

    def with_uci(self, name: str, text: str) -> Self:
        """A copy with the option of this UCI name (any case) set from a text. Raises OptionError."""
        option = _BY_UCI_NAME.get(name.strip().lower())
        if option is None:
            raise unknown("option", name.strip(), [option.title for option in OPTIONS])
        return self.parsed({option.name: text})


OPTIONS: tuple[Setting, ...] = tuple(settings_of(Options).values())
"""The table, in the order in which it is shown."""

ALIASES: Mapping[str, Setting] = {
    "Move Overhead": next(option for option in OPTIONS if option.name == "move_overhead_ms")
}
"""Further UCI names of options, listed as well: bots set other engines' names, and only listed ones."""

_BY_UCI_NAME = {
    **{option.title.lower(): option for option in OPTIONS},
    **{name.lower(): option for name, option in ALIASES.items()},
}


class AliasValues:
    """The values of the aliases as a GUI shows them: the default until an alias is set.

    Scid sets every listed option at each start. The default of an alias must not replace the value that the
    user gave the option by its own name.
    """

    def __init__(self) -> None:
        self._values = {name.lower(): option.default for name, option in ALIASES.items()}

    def repeated(self, name: str, options: Options) -> bool:
        """Note an alias's new value; True if it is the old one and must change nothing.

        name: a UCI name in any case; False if it is no alias. options: the result of `Options.with_uci`.
        """
        alias = name.strip().lower()
        if alias not in self._values:
            return False
        before = self._values[alias]
        self._values[alias] = getattr(options, _BY_UCI_NAME[alias].name)
        return bool(self._values[alias] == before)

"""Every option of the engine, in one table: the fields of `Options`.

The UCI `option` lines, the TOML file (`configs/engine.toml`), the `--flags` of the command line and the
keyword arguments of `engine.Engine` are all made from it. It is imported before `uciok`:
nothing heavy here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

Value = bool | int | float | str


class OptionError(ValueError):
    """An option that does not exist or a value that it cannot take. The message names both."""


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """What one option is called, what it takes and what it does.

    name: the UCI name. attribute: the name in Python, TOML and (with dashes) on the command line.
    low and high bound numbers, inclusive. choices are the values of a combo. An advanced option is left out
    of the short help.
    """

    name: str
    attribute: str
    default: Value
    help: str
    section: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    advanced: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.attribute.replace("_", "-")

    @property
    def uci_type(self) -> str:
        """The UCI type. UCI has no real numbers: a float is a string that must read as one."""
        if isinstance(self.default, bool):
            return "check"
        if isinstance(self.default, int):
            return "spin"
        return "combo" if self.choices else "string"

    def uci_line(self) -> str:
        """`option name … type … default …`, as sent in answer to `uci`."""
        line = f"option name {self.name} type {self.uci_type} default {self.text(self.default) or '<empty>'}"
        if self.uci_type == "spin":
            line += f" min {self.low:.0f} max {self.high:.0f}"
        return line + "".join(f" var {choice}" for choice in self.choices)

    @staticmethod
    def text(value: Value) -> str:
        """A value as UCI writes it."""
        return str(value).lower() if isinstance(value, bool) else str(value)

    def parse(self, text: str) -> Value:
        """The value that a UCI or command line text stands for. Raises OptionError."""
        text = text.strip()
        if isinstance(self.default, bool):
            if text.lower() in ("true", "on", "yes", "1"):
                return True
            if text.lower() in ("false", "off", "no", "0"):
                return False
            raise OptionError(f"{self.name} is true or false, not {_shown(text)}")
        if isinstance(self.default, int):
            try:
                return self.check(int(text))
            except ValueError as error:
                if isinstance(error, OptionError):
                    raise
                raise OptionError(f"{self.name} is a whole number, not {_shown(text)}") from None
        if isinstance(self.default, float):
            try:
                return self.check(float(text))
            except ValueError as error:
                if isinstance(error, OptionError):
                    raise
                raise OptionError(f"{self.name} is a number, not {_shown(text)}") from None
        return self.check("" if text == "<empty>" else text)

    def check(self, value: object) -> Value:
        """Return `value` as the option's own type. Raises OptionError if it is of another or out of range."""
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise OptionError(f"{self.name} is true or false, not {_shown(value)}")
            return value
        if isinstance(self.default, int | float):
            number = float if isinstance(self.default, float) else int
            if isinstance(value, bool) or not isinstance(value, int | number):
                kind = "number" if number is float else "whole number"
                raise OptionError(f"{self.name} is a {kind}, not {_shown(value)}")
            assert self.low is not None and self.high is not None
            if not isfinite(value) or not self.low <= value <= self.high:
                raise OptionError(f"{self.name} is from {self.low:g} to {self.high:g}, not {_shown(value)}")
            return number(value)
        if not isinstance(value, str):
            raise OptionError(f"{self.name} is a text, not {_shown(value)}")
        if self.choices:
            for choice in self.choices:
                if choice.lower() == value.lower():
                    return choice
            raise OptionError(f"{self.name} is one of {', '.join(self.choices)}, not {_shown(value)}")
        return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _option(
    name: str,
    default: Value,
    help: str,
    section: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    advanced: bool = False,
) -> Any:
    return field(
        default=default,
        metadata={"option": (name, default, help, section, low, high, choices, advanced)},
    )


_EVALUATOR = "evaluator"
_BATCHING = "batching"
_SEARCH = "search"
_CHOICE = "choice"
_OUTPUT = "output"
_TIME = "time"


@dataclass(frozen=True, slots=True)
class Options:
    """The value of every option. Immutable: `changed` gives a copy with other values."""

    weights: str = _option(
        "WeightsFile", "", "network file in lc0's format; empty is the shipped network", _EVALUATOR
    )
    backend: str = _option(
        "Backend",
        "auto",
        "what computes the network: auto takes the fastest; see `python -m evaluator serve --help`",
        _EVALUATOR,
    )
    evaluator: str = _option(
        "Evaluator",
        "",
        "address of a running evaluator (tcp://… or ipc://…); empty starts one that ends with the engine",
        _EVALUATOR,
    )
    threads: int = _option(
        "Threads",
        0,
        "threads of the started evaluator's CPU backend; 0 lets it choose",
        _EVALUATOR,
        low=0,
        high=256,
    )
    policy_head: str = _option(
        "PolicyHead",
        "",
        "policy head of a network that has several; empty is its first",
        _EVALUATOR,
        advanced=True,
    )
    value_head: str = _option(
        "ValueHead",
        "",
        "value head of a network that has several; empty is its first",
        _EVALUATOR,
        advanced=True,
    )
    history_fill: str = _option(
        "HistoryFill",
        "fen_only",
        "what stands for the positions before the start: nothing, the start again unless it is the initial "
        "position, or the start again always",
        _EVALUATOR,
        choices=("no", "fen_only", "always"),
        advanced=True,
    )

    minibatch_size: int = _option(
        "MinibatchSize",
        0,
        "positions per batch; 0 takes what the evaluator measured as best",
        _BATCHING,
        low=0,
        high=1024,
    )
    batches_in_flight: int = _option(
        "BatchesInFlight",
        2,
        "batches sent before the first is awaited",
        _BATCHING,
        low=1,
        high=8,
        advanced=True,
    )
    max_collision_visits: int = _option(
        "MaxCollisionVisits",
        80000,
        "visits a batch may lose to positions already on their way",
        _BATCHING,
        low=1,
        high=1000000,
        advanced=True,
    )
    max_collision_events: int = _option(
        "MaxCollisionEvents",
        917,
        "times a batch may run into a position already on its way",
        _BATCHING,
        low=1,
        high=65536,
        advanced=True,
    )
    hash: int = _option("Hash", 64, "megabytes of the evaluation cache", _BATCHING, low=1, high=262144)
    tree_memory: int = _option(
        "RamLimitMb",
        2048,
        "megabytes the search tree may take; a full tree ends the search",
        _BATCHING,
        low=16,
        high=1048576,
    )
    cache_history_length: int = _option(
        "CacheHistoryLength",
        0,
        "earlier positions that a cached evaluation must share",
        _BATCHING,
        low=0,
        high=7,
        advanced=True,
    )

    cpuct: float = _option(
        "CPuct", 1.745, "exploration: higher looks at more moves", _SEARCH, low=0, high=100, advanced=True
    )
    cpuct_base: float = _option(
        "CPuctBase", 38739.0, "visits over which exploration grows", _SEARCH, low=1, high=1e9, advanced=True
    )
    cpuct_factor: float = _option(
        "CPuctFactor", 3.894, "how much exploration grows", _SEARCH, low=0, high=1000, advanced=True
    )
    root_has_own_cpuct: bool = _option(
        "RootHasOwnCpuctParams",
        False,
        "use the three CPuct…AtRoot values at the root",
        _SEARCH,
        advanced=True,
    )
    cpuct_at_root: float = _option(
        "CPuctAtRoot", 1.745, "CPuct at the root", _SEARCH, low=0, high=100, advanced=True
    )
    cpuct_base_at_root: float = _option(
        "CPuctBaseAtRoot", 38739.0, "CPuctBase at the root", _SEARCH, low=1, high=1e9, advanced=True
    )
    cpuct_factor_at_root: float = _option(
        "CPuctFactorAtRoot", 3.894, "CPuctFactor at the root", _SEARCH, low=0, high=1000, advanced=True
    )
    fpu_strategy: str = _option(
        "FpuStrategy",
        "reduction",
        "value of an unvisited move: its parent's less FpuValue times the root of the visited moves' prior "
        "sum, or FpuValue itself",
        _SEARCH,
        choices=("reduction", "absolute"),
        advanced=True,
    )
    fpu_value: float = _option(
        "FpuValue", 0.33, "how pessimistic FpuStrategy is", _SEARCH, low=-100, high=100, advanced=True
    )
    fpu_strategy_at_root: str = _option(
        "FpuStrategyAtRoot",
        "same",
        "FpuStrategy at the root; with `same`, FpuValueAtRoot is not used",
        _SEARCH,
        choices=("same", "reduction", "absolute"),
        advanced=True,
    )
    fpu_value_at_root: float = _option(
        "FpuValueAtRoot", 1.0, "FpuValue at the root", _SEARCH, low=-100, high=100, advanced=True
    )
    policy_temperature: float = _option(
        "PolicyTemperature",
        1.359,
        "divides the network's logits: higher evens out the prior probabilities",
        _SEARCH,
        low=0.1,
        high=10,
        advanced=True,
    )
    draw_score: float = _option(
        "DrawScore",
        0.0,
        "value of a draw for White: -1 is a loss, 1 a win",
        _SEARCH,
        low=-1,
        high=1,
        advanced=True,
    )
    two_fold_draws: bool = _option(
        "TwoFoldDraws", True, "count the first repetition inside the tree as a draw", _SEARCH, advanced=True
    )
    sticky_endgames: bool = _option(
        "StickyEndgames", True, "remember proven wins, losses and draws", _SEARCH, advanced=True
    )
    moves_left_max_effect: float = _option(
        "MovesLeftMaxEffect",
        0.0345,
        "most that the game's expected length changes a value",
        _SEARCH,
        low=0,
        high=1,
        advanced=True,
    )
    moves_left_threshold: float = _option(
        "MovesLeftThreshold",
        0.8,
        "value of the position from which its length matters",
        _SEARCH,
        low=0,
        high=1,
        advanced=True,
    )
    moves_left_slope: float = _option(
        "MovesLeftSlope", 0.0027, "effect of one ply", _SEARCH, low=0, high=1, advanced=True
    )
    moves_left_constant_factor: float = _option(
        "MovesLeftConstantFactor",
        0.0,
        "share of the effect at any value",
        _SEARCH,
        low=-1,
        high=1,
        advanced=True,
    )
    moves_left_scaled_factor: float = _option(
        "MovesLeftScaledFactor",
        1.6521,
        "share of the effect in proportion to the value",
        _SEARCH,
        low=-2,
        high=2,
        advanced=True,
    )
    moves_left_quadratic_factor: float = _option(
        "MovesLeftQuadraticFactor",
        -0.6521,
        "share of the effect in proportion to the value's square",
        _SEARCH,
        low=-2,
        high=2,
        advanced=True,
    )
    smart_pruning_factor: float = _option(
        "SmartPruningFactor",
        1.33,
        "stop when the second move cannot catch up in the visits left over this factor; 0 never stops early",
        _SEARCH,
        low=0,
        high=10,
        advanced=True,
    )

    temperature: float = _option(
        "Temperature",
        0.0,
        "play a random move, by visits to the power 1/Temperature; 0 plays the best",
        _CHOICE,
        low=0,
        high=100,
        advanced=True,
    )
    temp_decay_moves: int = _option(
        "TempDecayMoves",
        0,
        "moves over which the temperature falls to nothing; 0 keeps it",
        _CHOICE,
        low=0,
        high=640,
        advanced=True,
    )
    temp_decay_delay_moves: int = _option(
        "TempDecayDelayMoves",
        0,
        "moves before the temperature begins to fall",
        _CHOICE,
        low=0,
        high=100,
        advanced=True,
    )
    temp_cutoff_move: int = _option(
        "TempCutoffMove",
        0,
        "move from which the temperature is TempEndgame; 0 is none",
        _CHOICE,
        low=0,
        high=1000,
        advanced=True,
    )
    temp_endgame: float = _option(
        "TempEndgame",
        0.0,
        "the temperature from TempCutoffMove on, and the least that decay leaves",
        _CHOICE,
        low=0,
        high=100,
        advanced=True,
    )
    temp_value_cutoff: float = _option(
        "TempValueCutoff",
        100.0,
        "largest loss of winning chance, in percent, that a random move may cost",
        _CHOICE,
        low=0,
        high=100,
        advanced=True,
    )
    temp_visit_offset: float = _option(
        "TempVisitOffset",
        0.0,
        "added to the visits of every move when a random one is chosen",
        _CHOICE,
        low=-1000,
        high=1000,
        advanced=True,
    )
    dirichlet_noise_epsilon: float = _option(
        "DirichletNoiseEpsilon",
        0.0,
        "share of noise in the prior probabilities of the root",
        _CHOICE,
        low=0,
        high=1,
        advanced=True,
    )
    dirichlet_noise_alpha: float = _option(
        "DirichletNoiseAlpha",
        0.3,
        "evenness of that noise: with a small one few moves get most of it",
        _CHOICE,
        low=0.001,
        high=1000,
        advanced=True,
    )
    nodes_as_playouts: bool = _option(
        "NodesAsPlayouts",
        False,
        "limits of nodes count the search's own visits only, not those kept from earlier ones",
        _CHOICE,
        advanced=True,
    )

    move_overhead_ms: int = _option(
        "MoveOverheadMs",
        100,
        "milliseconds kept back for the way between engine and GUI",
        _TIME,
        low=0,
        high=10000,
    )
    slowmover: float = _option(
        "Slowmover", 1.0, "multiplies the time spent on a move", _TIME, low=0.01, high=10
    )
    ponder: bool = _option("Ponder", False, "the GUI may let the engine think on the opponent's time", _TIME)

    multipv: int = _option("MultiPV", 1, "number of lines shown", _OUTPUT, low=1, high=500)
    chess960: bool = _option(
        "UCI_Chess960", False, "play Chess960: castling is written king takes rook", _OUTPUT
    )
    show_wdl: bool = _option(
        "UCI_ShowWDL", False, "show win, draw and loss in thousandths with each score", _OUTPUT
    )
    show_moves_left: bool = _option(
        "UCI_ShowMovesLeft", False, "show how many moves the game is expected to last", _OUTPUT, advanced=True
    )
    score_type: str = _option(
        "ScoreType",
        "centipawn",
        "unit of `score cp`: centipawns, percent won (times 100), q or win minus loss (times 10000 and 100), "
        "or 100 times the position of the evaluation's centre between loss and win",
        _OUTPUT,
        choices=("centipawn", "win_percentage", "Q", "W-L", "WDL_mu"),
        advanced=True,
    )
    verbose_move_stats: bool = _option(
        "VerboseMoveStats",
        False,
        "print the statistics of every root move before the best move",
        _OUTPUT,
        advanced=True,
    )
    log_file: str = _option("LogFile", "", "file to append all input and output to", _OUTPUT, advanced=True)

    def changed(self, **values: object) -> Options:
        """A copy with the given attributes set. Raises OptionError for unknown names and bad values."""
        checked = {name: spec_of_attribute(name).check(value) for name, value in values.items()}
        return replace(self, **checked)  # type: ignore[arg-type]

    def with_uci(self, name: str, text: str) -> Options:
        """A copy with the option of this UCI name (any case) set from a text. Raises OptionError."""
        spec = spec_of_name(name)
        return replace(self, **{spec.attribute: spec.parse(text)})  # type: ignore[arg-type]


def _specs() -> tuple[OptionSpec, ...]:
    specs = []
    for entry in fields(Options):
        name, default, help, section, low, high, choices, advanced = entry.metadata["option"]
        specs.append(OptionSpec(name, entry.name, default, help, section, low, high, choices, advanced))
    return tuple(specs)


OPTIONS: tuple[OptionSpec, ...] = _specs()
"""The table, in the order in which it is shown."""

_BY_NAME = {spec.name.lower(): spec for spec in OPTIONS}
_BY_ATTRIBUTE = {spec.attribute: spec for spec in OPTIONS}


def spec_of_name(name: str) -> OptionSpec:
    """The option of a UCI name, in any case. Raises OptionError."""
    try:
        return _BY_NAME[name.strip().lower()]
    except KeyError:
        raise OptionError(f"no such option: {_shown(name)}") from None


def spec_of_attribute(attribute: str) -> OptionSpec:
    """The option of a Python or TOML name. Raises OptionError that names the nearest one."""
    try:
        return _BY_ATTRIBUTE[attribute]
    except KeyError:
        from difflib import get_close_matches

        near = get_close_matches(attribute, _BY_ATTRIBUTE, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise OptionError(f"no such option: {_shown(attribute)}{hint}") from None


def default_toml() -> str:
    """The commented TOML file that shows every option at its default: `configs/engine.toml`."""
    lines = [
        "# Options of the engine: each at its default. Use it with `python run_engine.py --config FILE`;",
        "# flags and `setoption` come after the file and win over it.",
    ]
    section = ""
    for spec in OPTIONS:
        if spec.section != section:
            section = spec.section
            lines += ["", f"[{section}]"]
        note = f"# {spec.help}"
        if spec.low is not None and spec.high is not None:
            note += f" ({spec.low:g} to {spec.high:g})"
        elif spec.choices:
            note += f" ({', '.join(spec.choices)})"
        lines += [note, f"{spec.attribute} = {_toml_value(spec.default)}"]
    return "\n".join(lines) + "\n"


def _toml_value(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) else OptionSpec.text(value)


def read_toml(path: str | Path, options: Options | None = None) -> Options:
    """Options from a TOML file, on top of `options`. Raises OptionError that names the file."""
    import tomllib

    try:
        with Path(path).open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} is not TOML: {error}") from None
    values: dict[str, object] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            values.update(value)
        else:
            values[key] = value
    try:
        return (options or Options()).changed(**values)
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from None


def add_flags(
    parser: argparse.ArgumentParser, *, only: Iterable[str] | None = None, show_advanced: bool = False
) -> None:
    """Give a parser a flag for every option (or the attributes in `only`) and `--config`."""
    import argparse

    wanted = set(only) if only is not None else None
    group = parser.add_argument_group("options")
    group.add_argument("--config", metavar="FILE", help="read options from a TOML file (configs/engine.toml)")
    for spec in OPTIONS:
        if wanted is not None and spec.attribute not in wanted:
            continue
        hidden = spec.advanced and not show_advanced and wanted is None
        text = f"{spec.help} (default: {spec.text(spec.default) or 'empty'})".replace("%", "%%")
        group.add_argument(
            spec.flag,
            dest=f"option_{spec.attribute}",
            metavar=spec.attribute.upper() if not spec.choices else "{" + ",".join(spec.choices) + "}",
            help=argparse.SUPPRESS if hidden else text,
        )


def options_of_arguments(arguments: argparse.Namespace, options: Options | None = None) -> Options:
    """The options that parsed flags stand for: defaults, then the TOML file, then the flags.

    Raises OptionError.
    """
    result = options or Options()
    if getattr(arguments, "config", None):
        result = read_toml(arguments.config, result)
    for spec in OPTIONS:
        text = getattr(arguments, f"option_{spec.attribute}", None)
        if text is not None:
            try:
                result = result.with_uci(spec.name, text)
            except OptionError as error:
                raise OptionError(f"{spec.flag}: {error}") from None
    return result

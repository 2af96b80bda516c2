"""A session: options, evaluator, position and tree, from which searches are run. UCI and the Python API sit
on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING

from engine._core import Game, SearchParams, Tree
from engine.evaluation.link import EvaluatorLink, EvaluatorSettings, NoEvaluatorError
from engine.evaluation.pipeline import InstantPipeline, Pipeline, RemotePipeline
from engine.options import Options
from engine.search.driver import BatchSizes, Search, SearchControl, SearchPosition
from engine.search.limits import Limits
from engine.search.report import Report

if TYPE_CHECKING:
    from protocol.client import EvaluatorClient
    from protocol.messages import Priority

IN_PROCESS_BATCH = 256
"""Positions per batch with the instant evaluator, when the options name none."""


def search_params(options: Options, input_format: int) -> SearchParams:
    """The options as the core takes them. input_format: lc0's number of the network's input planes."""
    params = SearchParams()
    for name in (
        "cpuct",
        "cpuct_base",
        "cpuct_factor",
        "fpu_value",
        "policy_temperature",
        "moves_left_max_effect",
        "moves_left_threshold",
        "moves_left_slope",
        "moves_left_constant_factor",
        "moves_left_scaled_factor",
        "moves_left_quadratic_factor",
        "draw_score",
        "two_fold_draws",
        "sticky_endgames",
        "max_collision_events",
        "max_collision_visits",
        "cache_history_length",
        "history_fill",
    ):
        setattr(params, name, getattr(options, name))
    own = options.root_has_own_cpuct
    params.cpuct_at_root = options.cpuct_at_root if own else options.cpuct
    params.cpuct_base_at_root = options.cpuct_base_at_root if own else options.cpuct_base
    params.cpuct_factor_at_root = options.cpuct_factor_at_root if own else options.cpuct_factor
    params.fpu_absolute = options.fpu_strategy == "absolute"
    same = options.fpu_strategy_at_root == "same"
    params.fpu_absolute_at_root = params.fpu_absolute if same else options.fpu_strategy_at_root == "absolute"
    params.fpu_value_at_root = options.fpu_value if same else options.fpu_value_at_root
    params.tree_bytes = options.tree_memory << 20
    params.cache_bytes = options.hash << 20
    params.input_format = input_format
    return params


class SearchTree:
    """A tree that follows the options and the network; made when it is first needed."""

    def __init__(self) -> None:
        self._tree: Tree | None = None
        self._key: tuple[Options, int] | None = None
        self._network_hash = ""

    def prepared(self, options: Options, input_format: int, network_hash: str) -> Tree:
        """The tree, with these options. What it holds of another network is forgotten."""
        key = (options, input_format)
        if self._tree is None:
            self._tree = Tree(search_params(options, input_format))
        else:
            if self._key != key:
                self._tree.set_params(search_params(options, input_format))
            if self._network_hash != network_hash:
                self.clear()
        self._key = key
        self._network_hash = network_hash
        return self._tree

    def set_root(self, game: Game, allowed: Sequence[str], options: Options, random: Random) -> Tree:
        """Make a game's position the root of the prepared tree, to be searched with these moves (all if there
        are none) and the noise that the options ask for."""
        assert self._tree is not None
        self._tree.set_position(game)
        self._tree.set_root_moves(allowed)
        if options.dirichlet_noise_epsilon > 0:
            self._tree.add_root_noise(
                options.dirichlet_noise_epsilon, options.dirichlet_noise_alpha, random.getrandbits(64)
            )
        return self._tree

    def new_game(self) -> None:
        """Forget the tree; cached evaluations stay true."""
        if self._tree is not None:
            self._tree.clear()

    def clear(self) -> None:
        """Forget the tree and every cached evaluation."""
        if self._tree is not None:
            self._tree.clear()
            self._tree.clear_cache()


class Session:
    """Everything between two processes' command lines: belongs to one thread at a time.

    log takes messages for the user. in_process: evaluate at random inside the process, without an evaluator.
    fallback: an evaluator given by address may be replaced by one of our own when it is out of reach.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        log: Callable[[str], None] = lambda text: None,
        in_process: bool = False,
        fallback: bool = False,
        priority: Priority = "play",
    ) -> None:
        self._options = options or Options()
        self._log = log
        self._in_process = in_process
        self._fallback = fallback
        self._priority: Priority = priority
        self._link: EvaluatorLink | None = None
        self._tree = SearchTree()
        self._random = Random()
        self.game = Game()

    @property
    def options(self) -> Options:
        return self._options

    @options.setter
    def options(self, options: Options) -> None:
        """Takes effect with the next search; another evaluator is started when one is next needed."""
        self._options = options
        if self._link is not None and self._link.settings != EvaluatorSettings.of(options):
            self._link.close()
            self._link = None

    @property
    def evaluator_pid(self) -> int | None:
        """Process id of the embedded evaluator, None if there is none."""
        return self._link.pid if self._link is not None else None

    # -- position ----------------------------------------------------------------------------------------

    def set_position(
        self, fen: str | None = None, moves: Sequence[str] = (), *, chess960: bool | None = None
    ) -> None:
        """Set the position to search: a FEN (None is the initial position) and moves from there, in UCI
        notation.

        chess960 is the option's value if None. Raises ValueError with a reason; the position is then
        unchanged.
        """
        game = Game(fen, self._options.chess960 if chess960 is None else chess960)
        for number, move in enumerate(moves, 1):
            try:
                game.push_uci(move)
            except ValueError as error:
                raise ValueError(f"move {number}: {error}") from None
        self.game = game

    def new_game(self) -> None:
        """Forget the tree: the next position has nothing to do with the last. Cached evaluations stay
        true."""
        self.game = Game(None, self._options.chess960)
        self._tree.new_game()

    def clear(self) -> None:
        """Forget the tree and every cached evaluation."""
        self._tree.clear()

    # -- evaluator ---------------------------------------------------------------------------------------

    def start_evaluator(self) -> EvaluatorLink:
        """Begin to find or start the evaluator; returns at once."""
        if self._link is None:
            self._link = EvaluatorLink(
                EvaluatorSettings.of(self._options), self._log, fallback=self._fallback
            )
        self._link.start()
        return self._link

    def ready(self, timeout: float) -> bool:
        """Whether a search can start at once, waiting up to `timeout` seconds. Raises NoEvaluatorError."""
        return self._in_process or self.start_evaluator().wait(timeout) is not None

    def describe_evaluator(self) -> str:
        """The network and device in use, in words; empty while there is no connection."""
        client = self._link.client if self._link is not None else None
        if client is None:
            return ""
        network = client.network
        return f"{network.name} on {network.device or network.backend}"

    def _connected(self, limits: Limits, control: SearchControl, started: float) -> EvaluatorClient:
        """The evaluator, waiting for it as long as the limits allow. Raises NoEvaluatorError."""
        link = self.start_evaluator()
        clock = limits.clock.of(self.game.turn) if limits.clock is not None else None
        patience = float("inf")
        if clock is not None:
            patience = clock[0] / 2000
        elif limits.movetime_ms is not None:
            patience = limits.movetime_ms / 1000
        while True:
            client = link.wait(0.02)
            if client is not None:
                return client
            late = perf_counter() - started > patience and not control.pondering
            if control.stopped or late:
                raise NoEvaluatorError("the evaluator was not ready in time")

    # -- search ------------------------------------------------------------------------------------------

    def search(
        self,
        limits: Limits,
        *,
        control: SearchControl | None = None,
        started: float | None = None,
        on_report: Callable[[Report], None] | None = None,
    ) -> Report:
        """Search the position until a limit is met or `control` stops it; on_report gets it as it goes.

        started: when the clock began to run, in perf_counter seconds. Raises NoEvaluatorError if there was no
        evaluator in time for anything; one that is lost later only ends the search early.
        """
        control = control or SearchControl(pondering=limits.ponder)
        started = perf_counter() if started is None else started
        legal = self.game.legal_moves()
        if not legal:
            return Report(best_move=None, ponder=None)
        allowed = [move for move in limits.search_moves if move in legal]
        pipeline: Pipeline
        if self._in_process:
            tree = self._tree.prepared(self._options, 1, "in-process")
            batch = self._options.minibatch_size or IN_PROCESS_BATCH
            pipeline = InstantPipeline(tree, batch)
            sizes = BatchSizes(batch)
        else:
            client = self._connected(limits, control, started)
            network = client.network
            tree = self._tree.prepared(self._options, network.input_format, network.content_hash)
            sizes = BatchSizes.of(client.recommended_batch, client.max_batch, client.curve)
            link = self._link
            assert link is not None
            pipeline = RemotePipeline(
                tree,
                link,
                capacity=min(self._options.minibatch_size or sizes.largest, client.max_batch),
                input_format=network.input_format,
                priority=self._priority,
                log=self._log,
            )
        self._tree.set_root(self.game, allowed, self._options, self._random)
        return Search(
            tree,
            pipeline,
            SearchPosition(self.game.turn, self.game.ply // 2 + 1, allowed or legal),
            limits,
            self._options,
            sizes,
            control=control,
            started=started,
            on_report=on_report,
            log=self._log,
            random=self._random,
        ).run()

    def close(self) -> None:
        """End the embedded evaluator and disconnect. Idempotent."""
        if self._link is not None:
            self._link.close()
            self._link = None

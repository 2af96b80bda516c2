"""
The native search core: chess rules, lc0 input encoding and the search tree.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy
from numpy.typing import NDArray

from protocol._core import Stream


CORE_DIGEST: str = ...

class Game:
    """
    A game of chess: a start position, the moves played, and all rules.

    Game(fen=None, chess960=False) starts from a FEN, or from the initial position. Moves are UCI text; castling
    is written e1g1, with chess960 king takes rook (e1h1), and is understood in both spellings.

        >>> game = Game()
        >>> game.push_uci("e2e4")
        >>> game.fen()
        'rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1'

    allow_opponent_check accepts a FEN whose side to move could take the king, as lc0 does: such a position can be
    encoded and evaluated (playable is False), but no move can be played.

    Raises ValueError, saying what is wrong, for an illegal FEN.
    """

    def __init__(self, fen: str | None = None, chess960: bool = False, *, allow_opponent_check: bool = False) -> None: ...

    @staticmethod
    def read(
        fen: str, chess960: bool = False, *, allow_opponent_check: bool = False
    ) -> tuple[Game, list[str]]:
        """
        Read a FEN from outside and return the game and what was corrected in it, a phrase each.

        What has one obvious correction is corrected: missing fields behind the side to move, castling rights without
        king or rook, a wrong en-passant square, counters out of range. Pieces and the side to move never change.
        Raises ValueError for any other fault.
        """

    def push_uci(self, move: str) -> None:
        """
        Play a legal move. Raises ValueError, and leaves the game as it was, for any other text.
        """

    def pop(self) -> str:
        """
        Take the last move back and return it. Raises ValueError if no move was played.
        """

    def legal_moves(self) -> list[str]:
        """The legal moves, in a fixed order; empty after mate and stalemate."""

    def moves(self) -> list[str]:
        """The moves played so far."""

    def fen(self) -> str:
        """
        The current position; the en-passant square only if a capture there is legal.
        """

    def start_fen(self) -> str:
        """The start position, written as fen() does."""

    def copy(self) -> Game:
        """An independent copy."""

    def __copy__(self) -> Game: ...

    def __deepcopy__(self, memo: object) -> Game: ...

    def result(self) -> tuple[str, str]:
        """
        How the game stands: ("undecided" | "white_won" | "black_won" | "draw", reason).

        The reason is "checkmate", "stalemate", "insufficient material", "fifty-move rule" (100 plies),
        "threefold repetition", or "" while undecided. Mate comes before the 50-move rule.
        """

    @property
    def chess960(self) -> bool:
        """Whether Chess960 rules apply."""

    @property
    def turn(self) -> str:
        """The side to move, "white" or "black"."""

    @property
    def in_check(self) -> bool:
        """Whether the side to move is in check."""

    @property
    def playable(self) -> bool:
        """False if the side to move could take the king."""

    @property
    def rule50(self) -> int:
        """Plies since the last capture or pawn move."""

    @property
    def ply(self) -> int:
        """
        Plies since the beginning of the game, counting from the FEN's move number.
        """

    @property
    def men(self) -> int:
        """Men on the board, both sides."""

    @property
    def has_castling_rights(self) -> bool:
        """Whether either side may still castle."""

    @property
    def repetitions(self) -> int:
        """How often the position occurred before, by the rules (0, 1, 2 ...)."""

    @property
    def plies_since_repetition(self) -> int:
        """Plies since the position last occurred, 0 if it did not."""

    @property
    def key(self) -> int:
        """
        64-bit key: equal for positions that are the same by the rules of repetition.
        """

def encode(games: Sequence[Game], input_format: int, history_fill: str) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None, None))], Annotated[NDArray[numpy.int8], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint16], dict(shape=(None,))]]:
    """
    Encode the games' current positions as input of an lc0 network.

    input_format is the network's (1, 2, 3, 4, 5, 132 or 133), history_fill "no", "fen_only" or "always".
    Returns (positions uint8 [n, 904], transforms int8 [n], move_offsets uint32 [n + 1], moves uint16 [m]): the
    encoded positions (protocol.batch.POSITION_DTYPE), the board transform of each (0 to 7), and the policy
    indices of the legal moves, those of position i at move_offsets[i] to move_offsets[i + 1] in the order of
    Game.legal_moves(). Raises ValueError for an unknown format or fill.
    """

def policy_index(game: Game, move: str, transform: int = 0) -> int:
    """
    The policy entry (0 to 1857) of a legal move, with a board transform. Raises ValueError.
    """

def policy_move(game: Game, index: int, transform: int = 0) -> str:
    """
    The legal move that a policy entry stands for. Raises ValueError if there is none.
    """

def policy_moves() -> list[str]:
    """
    The 1858 entries of lc0's policy vector as moves in the view of the side to move (castling e1h1, a
    promotion to knight without suffix).
    """

def perft(game: Game, depth: int) -> int:
    """
    Count the legal move sequences of `depth` plies (0 to 30). Releases the GIL. Raises ValueError.
    """

def perft_divide(game: Game, depth: int) -> list[tuple[str, int]]:
    """
    The same as (move, count) for each first move, depth 1 to 30. Releases the GIL. Raises ValueError.
    """

class Tablebases:
    """The Syzygy tables in some folders.

    Tablebases(folders) lists .rtbw (win, draw, loss) and .rtbz (distance to zeroing) files; each is opened when a
    position first asks for it. Folders that cannot be read are in missing_folders, damaged files are left out and
    named by take_complaints. For any thread.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None: ...
    @property
    def wdl_tables(self) -> int:
        """How many there are."""

    @property
    def dtz_tables(self) -> int:
        """How many there are."""

    @property
    def most_men(self) -> int:
        """Men of the largest WDL table, kings included; 0 without any."""

    @property
    def missing_folders(self) -> list[Path]: ...
    def probe_wdl(self, game: Game) -> int | None:
        """The current position's value for the side to move, with the 50-move clock at 0: 2 win, 1 cursed win,
        0 draw, -1 blessed loss, -2 loss. None if the tables do not have it."""

    def probe_dtz(self, game: Game) -> int | None:
        """Plies to the next capture or pawn move or to mate with best play, with the sign of the value; 100
        more if the 50-move rule makes it a draw; 0 for draws. May be one too small. None if the tables do
        not have it."""

    def take_complaints(self) -> list[str]:
        """What was found to be wrong with files since this was last asked, one sentence each."""


def encode_line(
    start: Game,
    moves: NDArray[numpy.uint16],
    branch_at: NDArray[numpy.uint32],
    branch_moves: NDArray[numpy.uint16],
    asked: NDArray[numpy.uint16],
    input_format: int,
    history_fill: str,
) -> tuple[
    NDArray[numpy.uint8],
    NDArray[numpy.int8],
    NDArray[numpy.uint64],
    NDArray[numpy.uint32],
    NDArray[numpy.uint16],
    NDArray[numpy.uint16],
    NDArray[numpy.uint8],
]:
    """
    Play moves from a game's current position and encode the position before each, and branches.

    moves: uint16 [n], codes from | to << 6 | promotion << 12 (none, knight, bishop, rook, queen), castling as the
    king's two-square move or as king takes rook. branch_at: uint32 [b], ascending: in these positions (0 to n - 1)
    branch_moves, uint16 [b], is played as well; the positions after it are the rows n to n + b - 1 of everything.
    asked: uint16 [n + b, k], codes of moves whose place among the legal moves is wanted, 0 for none.

    Returns (positions uint8 [n + b, 904], transforms int8 [n + b], keys uint64 [n + b] (as Game.key), move_offsets
    uint32 [n + b + 1], policy uint16 [m], codes uint16 [m], places uint8 [n + b, k]): as `encode`, with the codes
    of the legal moves (castling is king takes rook) beside their policy indices; 255 is the place of no move.
    `start` is not changed. Releases the GIL. Raises ValueError, which names the position, for an illegal move.
    """

class SearchParams:
    """Every setting of the search core; names and defaults as lc0's (engine/core/tree/search_params.h)."""

    def __init__(self, other: SearchParams = ...) -> None: ...

    cpuct: float
    cpuct_base: float
    cpuct_factor: float
    cpuct_at_root: float
    cpuct_base_at_root: float
    cpuct_factor_at_root: float
    cpuct_deviation_scale: float
    deviation_prior: float
    deviation_prior_visits: float
    fpu_absolute: bool
    fpu_value: float
    fpu_absolute_at_root: bool
    fpu_value_at_root: float
    policy_temperature: float
    policy_temperature_at_root: float
    moves_left_max_effect: float
    moves_left_threshold: float
    moves_left_slope: float
    moves_left_constant_factor: float
    moves_left_scaled_factor: float
    moves_left_quadratic_factor: float
    draw_score: float
    two_fold_draws: bool
    sticky_endgames: bool
    known_draws: str
    """'off', 'proven' or 'repetition'. Setting anything else raises ValueError."""

    noise_pruning_scale: float
    transposition_visits: int
    tablebases: Tablebases | None
    syzygy_50_move_rule: bool
    syzygy_fast_play: bool
    max_collision_events: int
    max_collision_visits: int
    visits_per_collision: int
    wdl_ratio: float
    wdl_shift: float
    wdl_max_scale: float
    value_choice_share: float
    value_choice_deviations: float
    max_collision_visits_scaling_start: int
    max_collision_visits_scaling_end: int
    max_collision_visits_scaling_power: float
    max_out_of_order_factor: float
    tree_bytes: int
    cache_bytes: int
    cache_history_length: int
    input_format: int
    """Number of the network's input encoding. Setting an unknown one raises ValueError."""
    history_fill: str
    """'no', 'fen_only' or 'always'. Setting anything else raises ValueError."""

class Batch:
    """Leaves on their way through the evaluator; holds 1 to `capacity` positions (at most 65536)."""

    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def size(self) -> int:
        """Positions in the batch."""

    @property
    def wanted(self) -> int:
        """Those of them that get a visit; the others are looked ahead to."""

    @property
    def move_count(self) -> int:
        """Legal moves of all its positions."""

    @property
    def positions(self) -> NDArray[numpy.uint8]:
        """uint8 [size, 904], encoded positions; valid until the batch is applied or cancelled."""

    @property
    def move_offsets(self) -> NDArray[numpy.uint32]:
        """uint32 [size + 1]."""

    @property
    def moves(self) -> NDArray[numpy.uint16]:
        """uint16, policy indices of the legal moves."""

    def packed(self) -> tuple[bytes, bytes, bytes]:
        """
        Copies of positions, move_offsets and moves. For a small batch they take less time to make than arrays.
        """

class CollectResult:
    @property
    def evaluations(self) -> int:
        """Positions in the batch."""

    @property
    def visits_done(self) -> int:
        """Visits finished without the evaluator."""

    @property
    def cache_hits(self) -> int: ...
    @property
    def promoted(self) -> int:
        """Visits that wait for what a batch in flight looks ahead to."""

    @property
    def collision_visits(self) -> int: ...
    @property
    def full(self) -> bool:
        """The tree's memory is used up, and is being pruned."""

class Evaluation:
    """Of a move or position, for the side to move at the root."""

    @property
    def q(self) -> float: ...
    @property
    def d(self) -> float: ...
    @property
    def m(self) -> float:
        """Plies to the end of the game."""

    @property
    def wdl(self) -> tuple[float, float, float]: ...

class Proof:
    """A proven result for the side to move at the root."""

    @property
    def value(self) -> int:
        """1 win, 0 draw, -1 loss."""

    @property
    def plies(self) -> int:
        """Plies to mate, of the mate that was found (there may be a shorter one); meaningless for draws, and by
        tablebases."""

    @property
    def by_tables(self) -> bool:
        """Whether it rests on tablebases."""

class TableValue:
    """What tablebases say of a root move, for the side to move at the root."""

    @property
    def value(self) -> int:
        """1 win, 0 draw, -1 loss."""

    @property
    def plies(self) -> int:
        """Plies to the next capture or pawn move if the tables know the root, else to the position that they
        know; 0 if unknown."""

class ChildInfo:
    """A root move."""

    @property
    def move(self) -> str: ...
    @property
    def visits(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def prior(self) -> float: ...
    @property
    def raw_prior(self) -> float:
        """
        The prior before noise was mixed in, and before the root's own policy temperature.
        """

    @property
    def evaluation(self) -> Evaluation: ...
    @property
    def own_q(self) -> float | None:
        """The network's own value of it, None where it is not known or not asked for."""

    @property
    def deviation(self) -> float:
        """
        Standard deviation of the values that its visits brought; 0 where the search keeps none.
        """

    @property
    def exploration(self) -> float:
        """PUCT's U."""

    @property
    def value(self) -> float:
        """Q with the value of a draw; of a move without visits, the first-play urgency."""

    @property
    def score(self) -> float:
        """PUCT's score: value, moves-left utility and exploration."""

    @property
    def bounds(self) -> tuple[int, int]:
        """What is proven: the least and the best result, -1 to 1."""

    @property
    def proof(self) -> Proof | None: ...

class Line:
    """A root move with its principal variation."""

    @property
    def moves(self) -> list[str]: ...
    @property
    def move_visits(self) -> list[int]:
        """Visits of each move."""

    @property
    def visits(self) -> int: ...
    @property
    def prior(self) -> float: ...
    @property
    def evaluation(self) -> Evaluation: ...
    @property
    def doubt(self) -> float | None:
        """What the choice of the move takes off Q by ValueChoiceDeviations; None without, or without visits."""

    @property
    def proof(self) -> Proof | None: ...
    @property
    def by_tables(self) -> TableValue | None:
        """What tablebases say of it, unless a mate is proven."""

class RootInfo:
    """The state of the search."""

    @property
    def visits(self) -> int:
        """Of the root, those kept from earlier searches included."""

    @property
    def playouts(self) -> int:
        """Visits since the position was set."""

    @property
    def mean_depth(self) -> float:
        """Mean leaf depth in plies, visits kept included."""

    @property
    def max_depth(self) -> int: ...
    @property
    def evaluations(self) -> int:
        """Positions sent to the evaluator since the position was set."""

    @property
    def cache_hits(self) -> int: ...
    @property
    def tablebase_hits(self) -> int:
        """Positions found in tablebases since then, those after the root's moves included."""

    @property
    def evaluation(self) -> Evaluation: ...
    @property
    def own_evaluation(self) -> Evaluation | None:
        """The network's own, None where it is not known; d and m are NaN if it is no longer cached."""

    @property
    def q_deviation(self) -> float:
        """Standard deviation of the values that the playouts brought back."""

    @property
    def proof(self) -> Proof | None: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def hashfull(self) -> int:
        """Tree memory in use, in thousandths."""

    @property
    def batches_in_flight(self) -> int: ...
    @property
    def promoted(self) -> int:
        """Visits in flight that wait for what a batch looks ahead to."""

    @property
    def full(self) -> bool: ...

class Tree:
    """The MCTS tree of one game's current position.

    One thread may collect, apply, cancel and set positions; any thread may ask for root_info, lines and children.
    """

    def __init__(self, params: SearchParams) -> None: ...
    @property
    def params(self) -> SearchParams:
        """A copy."""

    def set_params(self, params: SearchParams) -> None:
        """Change settings between searches; clears cache and tree where what they hold depends on them."""

    def set_position(self, game: Game, keep_before: int = 0) -> int:
        """Make the game's current position the root; returns the visits kept from before.

        They are kept if the game goes on, or starts from a position of the tree up to four plies below. Of the
        last `keep_before` positions before the current one the other moves are kept as well, in case the game has
        gone there. Raises RuntimeError while a batch is in flight, ValueError for a position that cannot be played.
        """

    def set_root_moves(self, moves: Sequence[str]) -> None:
        """Search only these root moves (UCI); an empty list searches all. Raises ValueError for an illegal one."""

    def root_moves(self) -> list[str]:
        """The root moves that the search chooses from (UCI): of those set, or of all, the best ones by the
        tablebases where these know the position."""

    def set_move_rules(self, rules: Sequence[tuple[bool, Sequence[str], int, bool]]) -> None:
        """Limit the moves searched below the root: (White's, moves in UCI notation, depth, only these).

        A rule holds for moves made less than so many plies below the root; the root's own are those of
        set_root_moves. Where the rules leave no move, all are searched. A change forgets the tree.

        Raises ValueError for a depth below 1, RuntimeError for a change while a batch is in flight.
        """

    def add_root_noise(self, epsilon: float, alpha: float, seed: int) -> None:
        """Mix Dirichlet noise into the root's priors, once as long as it is the root: (1 - epsilon) P + epsilon noise.

        Raises ValueError unless 0 <= epsilon <= 1 and alpha > 0.
        """

    def clear(self) -> None:
        """Forget the tree; the evaluation cache stays."""

    def clear_cache(self) -> None: ...
    def collect(self, batch: Batch, target: int, max_visits: int = ..., ahead: int = 0) -> CollectResult:
        """Fill the batch with up to `target` positions, giving at most `max_visits` visits. Then with up to `ahead`
        positions that are likely to be wanted next: their evaluations go to the cache, no visit is counted."""

    def apply(
        self,
        batch: Batch,
        logits: NDArray[numpy.float32],
        wdl: NDArray[numpy.float32],
        moves_left: NDArray[numpy.float32],
    ) -> None:
        """Take the evaluations of a batch: float32 logits [moves], wdl [size, 3], moves_left [size].

        Raises ValueError, and changes nothing, if sizes are wrong or a value is not finite.
        """

    def apply_random(self, batch: Batch) -> None:
        """Apply what the evaluator's `random` backend would answer, without asking it."""

    def cancel(self, batch: Batch) -> None:
        """Take a batch back as if it had not been collected."""

    def abandon(self, batch: Batch) -> None:
        """Take the visits of a batch back, but keep its positions: `apply` then puts their evaluations into the
        cache and does nothing else. Until then it is not in flight."""

    def root_info(self) -> RootInfo: ...
    def lines(self, count: int) -> list[Line]:
        """The best moves' principal variations, best first. Those without visits come by their priors and are
        valued at the first-play urgency."""

    def children(self, own_values: bool = False) -> list[ChildInfo]:
        """
        Every root move that is searched, best first. own_values: with the network's own values.
        """

def evaluate_randomly(
    batch: Batch,
) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.float32]]:
    """What the `random` backend answers for a batch: (logits, wdl, moves_left)."""

class BatchRule:
    """How many positions a search asks for at a time: the arithmetic of BatchSizes, whose fields these are."""

    def __init__(
        self,
        *,
        best: int,
        curve: Sequence[tuple[int, float]],
        largest: int,
        filled: int,
        large_tree: int,
        share: int,
        least: int,
        together: bool,
        factor: float,
        in_flight: int,
        second: int,
    ) -> None:
        """Raises ValueError for a share below 1."""

    @property
    def in_flight(self) -> int: ...
    def in_tree(self, visits: int) -> int: ...
    def wanted(self, visits: int, under_way: int) -> int: ...
    def fitting(self, milliseconds: float) -> int: ...
    def next(self, visits: int, under_way: int, in_time: int) -> tuple[int, int]:
        """Positions of the next batch that get a visit, 0 if there is to be none, and those besides that it looks
        ahead to. in_time: the largest batch that comes back in time."""

class Bursts:
    """A search's calls without the interpreter, for some milliseconds at a time (engine/core/exchange); on Linux only.

    priority, target_ms: of its requests; None: no target. The counts are those of the last run: next_id (of
    the next request), evaluations and batches (sent), answers.
    """

    def __init__(self, priority: str, target_ms: float | None = None) -> None: ...
    @property
    def next_id(self) -> int: ...
    @property
    def evaluations(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def answers(self) -> int: ...
    def run(
        self,
        tree: Tree,
        stream: Stream,
        rule: BatchRule,
        *,
        network: str,
        content_hash: str,
        next_id: int,
        sent: dict[int, Batch],
        spare: list[Batch],
        until: float,
        patience: float,
        hard: float | None,
        nodes: int | None,
        nodes_as_playouts: bool,
        look_at: int,
        depth: float,
    ) -> Literal["time", "look", "idle", "silence", "other"]:
        """Take answers, collect and send until there is a reason to end, and return it: see
        engine/evaluation/bursts.py, which has the same limits. Times are seconds from now.

        sent: batches in flight, by the number of their request; changed in place, and `spare` with it.
        content_hash: of the network; results that name another one are left in the stream.
        """

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

    Game(fen=None, chess960=False) starts from a FEN, or from the initial position. Moves are UCI text.
    Castling is written e1g1, with chess960 king takes rook (e1h1). Both notations are accepted.

        >>> game = Game()
        >>> game.push_uci("e2e4")
        >>> game.fen()
        'rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1'

    allow_opponent_check: accept a FEN whose side to move could take the king, as lc0 does. Such a position
    can be encoded and evaluated (playable is False), but no move can be played.

    Raises ValueError with the reason for an illegal FEN.
    """

    def __init__(self, fen: str | None = None, chess960: bool = False, *, allow_opponent_check: bool = False) -> None: ...

    @staticmethod
    def read(
        fen: str, chess960: bool = False, *, allow_opponent_check: bool = False
    ) -> tuple[Game, list[str]]:
        """
        Read an untrusted FEN, and return the game and its corrections, a phrase each.

        Errors with one obvious correction are corrected: missing fields after the side to move, castling
        rights without king or rook, a wrong en-passant square, counters out of range. Pieces and the side to
        move never change.
        Raises ValueError for any other fault.
        """

    def push_uci(self, move: str) -> None:
        """Play a legal move. Raises ValueError, and leaves the game unchanged, for any other text."""

    def pop(self) -> str:
        """Take the last move back and return it. Raises ValueError if no move was played."""

    def legal_moves(self) -> list[str]:
        """Return the legal moves, in a fixed order; empty after mate and stalemate."""

    def moves(self) -> list[str]:
        """Return the moves played so far."""

    def fen(self) -> str:
        """Return the current position, with the en-passant square only if a capture there is legal."""

    def start_fen(self) -> str:
        """Return the start position in the format of fen()."""

    def copy(self) -> Game:
        """Return an independent copy."""

    def __copy__(self) -> Game: ...

    def __deepcopy__(self, memo: object) -> Game: ...

    def result(self) -> tuple[str, str]:
        """
        Return the state of the game: ("undecided" | "white_won" | "black_won" | "draw", reason).

        The reason is "checkmate", "stalemate", "insufficient material", "fifty-move rule" (100 plies),
        "threefold repetition", or "" while undecided. Mate precedes the 50-move rule.
        """

    @property
    def chess960(self) -> bool:
        """True if Chess960 rules apply."""

    @property
    def turn(self) -> str:
        """The side to move, "white" or "black"."""

    @property
    def in_check(self) -> bool:
        """True if the side to move is in check."""

    @property
    def playable(self) -> bool:
        """False if the side to move could take the king."""

    @property
    def rule50(self) -> int:
        """Plies since the last capture or pawn move."""

    @property
    def ply(self) -> int:
        """Plies since the beginning of the game, counting from the FEN's move number."""

    @property
    def men(self) -> int:
        """Number of men on the board, both sides."""

    @property
    def has_castling_rights(self) -> bool:
        """True if either side may still castle."""

    @property
    def repetitions(self) -> int:
        """Number of earlier occurrences of the position, by the rules (0, 1, 2 ...)."""

    @property
    def plies_since_repetition(self) -> int:
        """Plies since the last occurrence of the position; 0 if there is none."""

    @property
    def key(self) -> int:
        """64-bit key, equal for positions that are equal by the rules of repetition."""

def encode(games: Sequence[Game], input_format: int, history_fill: str) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None, None))], Annotated[NDArray[numpy.int8], dict(shape=(None,))], Annotated[NDArray[numpy.uint32], dict(shape=(None,))], Annotated[NDArray[numpy.uint16], dict(shape=(None,))]]:
    """
    Encode the games' current positions as input of an lc0 network.

    input_format: the network's (1, 2, 3, 4, 5, 132 or 133). history_fill: "no", "fen_only" or "always".
    Returns (positions uint8 [n, 904], transforms int8 [n], move_offsets uint32 [n + 1], moves uint16 [m]): the
    encoded positions (protocol.batch.POSITION_DTYPE), the board transform of each (0 to 7), and the policy
    indices of the legal moves, those of position i at move_offsets[i] to move_offsets[i + 1] in the order of
    Game.legal_moves(). Raises ValueError for an unknown format or fill.
    """

def policy_index(game: Game, move: str, transform: int = 0) -> int:
    """Return the policy index (0 to 1857) of a legal move under a board transform. Raises ValueError."""

def policy_move(game: Game, index: int, transform: int = 0) -> str:
    """Return the legal move of a policy index. Raises ValueError if there is none."""

def policy_moves() -> list[str]:
    """
    Return the moves of lc0's 1858 policy entries, in the view of the side to move (castling e1h1, promotion
    to knight without suffix).
    """

def perft(game: Game, depth: int) -> int:
    """Count the legal move sequences of `depth` plies (0 to 30). Releases the GIL. Raises ValueError."""

def perft_divide(game: Game, depth: int) -> list[tuple[str, int]]:
    """Return (move, count) for each first move. depth: 1 to 30. Releases the GIL. Raises ValueError."""

class MateSolver:
    """A search for the shortest mate by the side to move.

    MateSolver(game, moves, root_moves=[], table_bytes=64 MiB) searches for a mate in at most `moves` moves
    (more than 127 count as 127) from the game's current position, by proof numbers. root_moves: first moves
    to choose from; empty means all. table_bytes: maximum memory of its table. One thread at a time may use
    it.

        >>> solver = MateSolver(Game("6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1"), 3)
        >>> solver.run(100_000), solver.mate, solver.line
        (True, 1, ['d1d8'])

    Raises ValueError for fewer than 1 move, an illegal root move, or a game that is not playable.
    """

    def __init__(
        self, game: Game, moves: int, root_moves: Sequence[str] = ..., table_bytes: int = ...
    ) -> None: ...
    def run(self, positions: int) -> bool:
        """Search about this number of further positions. Return True once the result is final: a mate with
        its line, or the proof that there is none. Releases the GIL."""

    @property
    def mate(self) -> int:
        """Moves of the shortest mate; 0 while none is known."""

    @property
    def excluded(self) -> int:
        """There is no mate within this number of moves."""

    @property
    def line(self) -> list[str]:
        """The moves of the mate with the longest defence, in UCI notation. Incomplete until run returns
        True."""

    @property
    def positions(self) -> int:
        """Number of positions searched so far."""

    @property
    def table_bytes(self) -> int:
        """Current size of the table in bytes."""

    @property
    def table_fill(self) -> int:
        """Entries in use, in thousandths of the maximum."""

class Tablebases:
    """The Syzygy tables in some folders.

    Tablebases(folders) lists .rtbw (win, draw, loss) and .rtbz (distance to zeroing) files, and opens each at
    the first probe. missing_folders has unreadable folders. Damaged files are ignored, and take_complaints
    reports them. Thread-safe.
    """

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None: ...
    @property
    def wdl_tables(self) -> int:
        """Number of WDL tables."""

    @property
    def dtz_tables(self) -> int:
        """Number of DTZ tables."""

    @property
    def most_men(self) -> int:
        """Men of the largest WDL table, kings included; 0 without tables."""

    @property
    def missing_folders(self) -> list[Path]: ...
    def probe_wdl(self, game: Game) -> int | None:
        """Return the current position's value for the side to move, with a 50-move clock of 0: 2 win, 1
        cursed win, 0 draw, -1 blessed loss, -2 loss; None if the tables do not have it."""

    def probe_dtz(self, game: Game) -> int | None:
        """Return the plies to the next capture or pawn move or to mate with best play, with the sign of the
        value; 100 more if the 50-move rule makes it a draw; 0 for draws; None if the tables do not have it.
        The result may be one too small."""

    def take_complaints(self) -> list[str]:
        """Return the errors in files since the last call, one sentence each."""


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
    king's two-square move or as king takes rook. branch_at: uint32 [b], ascending: in these positions (0 to n
    - 1) branch_moves, uint16 [b], are played, too. Rows n to n + b - 1 of all results are for the positions
    after them. asked: uint16 [n + b, k], codes of moves whose place among the legal moves is requested, 0 for
    none.

    Returns (positions uint8 [n + b, 904], transforms int8 [n + b], keys uint64 [n + b] (as Game.key), move_offsets
    uint32 [n + b + 1], policy uint16 [m], codes uint16 [m], places uint8 [n + b, k]): see `encode`. codes: of
    the legal moves (castling is king takes rook), parallel to their policy indices. places: 255 for no move.
    `start` is not changed. Releases the GIL. Raises ValueError with the position for an illegal move.
    """

class SearchParams:
    """The settings of the search core, with lc0's names and defaults (engine/core/tree/search_params.h)."""

    def __init__(self, other: SearchParams = ...) -> None: ...

    cpuct: float
    cpuct_base: float
    cpuct_factor: float
    cpuct_at_root: float
    cpuct_base_at_root: float
    cpuct_factor_at_root: float
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
    """'off', 'proven' or 'repetition'. Other values raise ValueError."""

    transposition_visits: int
    tablebases: Tablebases | None
    syzygy_50_move_rule: bool
    syzygy_fast_play: bool
    solves_endings: bool
    max_collision_events: int
    max_collision_visits: int
    multipv: int
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
    """Number of the network's input encoding. Unknown numbers raise ValueError."""
    history_fill: str
    """'no', 'fen_only' or 'always'. Other values raise ValueError."""

class Batch:
    """Leaves for the evaluator: 1 to `capacity` positions (at most 65536)."""

    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def size(self) -> int:
        """Positions in the batch."""

    @property
    def wanted(self) -> int:
        """Positions that get a visit; the others are look-ahead."""

    @property
    def move_count(self) -> int:
        """Number of legal moves of all positions."""

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
        Return copies of positions, move_offsets and moves, which are faster than arrays for small batches.
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
        """Visits that wait for look-ahead positions of a batch in flight."""

    @property
    def collision_visits(self) -> int: ...
    @property
    def full(self) -> bool:
        """True if the tree's memory is used up and the tree is being pruned."""

class Evaluation:
    """The evaluation of a move or position, for the side to move at the root."""

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
        """Plies of the mate that was found (there may be a shorter one); meaningless for draws and tablebase
        results."""

    @property
    def by_tables(self) -> bool:
        """True if the proof depends on tablebases."""

class TableValue:
    """The tablebase value of a root move, for the side to move at the root."""

    @property
    def value(self) -> int:
        """1 win, 0 draw, -1 loss."""

    @property
    def plies(self) -> int:
        """Plies to the next capture or pawn move if the tables know the root, otherwise to the position that
        they know; 0 if unknown."""

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
    def policy(self) -> float:
        """The network's probability, without temperature and noise."""

    @property
    def evaluation(self) -> Evaluation: ...
    @property
    def own_q(self) -> float | None:
        """The network's own value; None if unknown or not requested."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the values of its visits; 0 if the search does not record it."""

    @property
    def exploration(self) -> float:
        """PUCT's U."""

    @property
    def value(self) -> float:
        """Q including the value of a draw; without visits, the first-play urgency."""

    @property
    def score(self) -> float:
        """PUCT's score: value, moves-left utility and exploration."""

    @property
    def bounds(self) -> tuple[int, int]:
        """Proven bounds: the worst and best possible result, -1 to 1."""

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
        """Deduction from Q in the choice of the move (ValueChoiceDeviations); None without it or visits."""

    @property
    def proof(self) -> Proof | None: ...
    @property
    def by_tables(self) -> TableValue | None:
        """Its tablebase value, unless a mate is proven."""

class RootInfo:
    """The state of the search."""

    @property
    def visits(self) -> int:
        """Visits of the root, including those kept from earlier searches."""

    @property
    def playouts(self) -> int:
        """Visits since the position was set."""

    @property
    def mean_depth(self) -> float:
        """Mean leaf depth in plies, kept visits included."""

    @property
    def max_depth(self) -> int: ...
    @property
    def evaluations(self) -> int:
        """Positions sent to the evaluator since the position was set."""

    @property
    def cache_hits(self) -> int: ...
    @property
    def tablebase_hits(self) -> int:
        """Positions found in tablebases since then, including those after the root's moves."""

    @property
    def evaluation(self) -> Evaluation: ...
    @property
    def own_evaluation(self) -> Evaluation | None:
        """The network's own evaluation; None if unknown. d and m are NaN if it is no longer cached."""

    @property
    def q_deviation(self) -> float:
        """Standard deviation of the playouts' values."""

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
        """Visits in flight that wait for look-ahead positions."""

    @property
    def full(self) -> bool: ...

class TreeFileSize:
    """The size of a saved tree."""

    @property
    def visits(self) -> int:
        """Visits of the root."""

    @property
    def nodes(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Of the file."""

def tree_file_header(path: str | os.PathLike[str]) -> tuple[Game, str]:
    """Return the game and the note of a saved tree. Raises ValueError for a damaged or foreign file."""

class Tree:
    """The MCTS tree of one game's current position.

    One thread may collect, apply, cancel and set positions. root_info, lines and children are thread-safe.
    """

    def __init__(self, params: SearchParams) -> None: ...
    @property
    def params(self) -> SearchParams:
        """A copy of the settings."""

    def set_params(self, params: SearchParams) -> None:
        """Change settings between searches. Clears cache and tree if their contents depend on them."""

    def set_position(self, game: Game, keep_before: int = 0) -> int:
        """Make the game's current position the root, and return the number of visits kept.

        Visits are kept if the game continues, or starts at a position of the tree up to four plies below.
        keep_before: number of previous positions whose other moves are kept, too, in case one of them is
        played. Raises RuntimeError while a batch is in flight, ValueError for an unplayable position.
        """

    def set_root_moves(self, moves: Sequence[str]) -> None:
        """Search only these root moves (UCI); an empty list searches all. Raises ValueError for an illegal one."""

    def root_moves(self) -> list[str]:
        """Return the root moves to search (UCI): those set, or all. If the tablebases know the position, only
        the best of them."""

    def set_move_rules(self, rules: Sequence[tuple[bool, Sequence[str], int, bool]]) -> None:
        """Limit the moves searched below the root. rules: (for White, UCI moves, depth, only these moves).

        It applies to moves less than `depth` plies below the root; set_root_moves limits the root. If the
        rules leave no move, all are searched. A change clears the tree.

        Raises ValueError for a depth below 1, RuntimeError for a change while a batch is in flight.
        """

    def add_root_noise(self, epsilon: float, alpha: float, seed: int) -> None:
        """Mix Dirichlet noise into the root's priors, once per root: (1 - epsilon) P + epsilon noise.

        Raises ValueError unless 0 <= epsilon <= 1 and alpha > 0.
        """

    def clear(self) -> None:
        """Clear the tree, but not the evaluation cache."""

    def clear_cache(self) -> None: ...
    def save(self, path: str | os.PathLike[str], settings: Sequence[tuple[str, str]], note: str = "") -> TreeFileSize:
        """Write the tree from the root down to a file, whose contents are replaced.

        settings: (name, value) of what the values depend on. note: text of tree_file_header. Raises
        ValueError if the file cannot be written, RuntimeError while a batch is in flight.
        """

    def load(self, path: str | os.PathLike[str], settings: Sequence[tuple[str, str]]) -> TreeFileSize:
        """Replace the tree and its position by those of a file.

        Raises ValueError for a damaged or foreign file, other settings, or too little memory; RuntimeError
        while a batch is in flight.
        """

    def collect(self, batch: Batch, target: int, max_visits: int = ..., ahead: int = 0) -> CollectResult:
        """Fill the batch with up to `target` positions, making at most `max_visits` visits. Then add up to
        `ahead` positions that are likely to be needed next. Their evaluations go to the cache without a
        visit."""

    def apply(
        self,
        batch: Batch,
        logits: NDArray[numpy.float32],
        wdl: NDArray[numpy.float32],
        moves_left: NDArray[numpy.float32],
    ) -> None:
        """Apply the evaluations of a batch: float32 logits [moves], wdl [size, 3], moves_left [size].

        Raises ValueError, and changes nothing, for wrong sizes or non-finite values.
        """

    def apply_random(self, batch: Batch) -> None:
        """Apply the results of the evaluator's `random` backend, computed in this process."""

    def cancel(self, batch: Batch) -> None:
        """Undo the collection of a batch."""

    def abandon(self, batch: Batch) -> None:
        """Undo the visits of a batch, but keep its positions: `apply` then only adds their evaluations to the
        cache. The batch no longer counts as in flight."""

    def root_info(self) -> RootInfo: ...
    def lines(self, count: int) -> list[Line]:
        """Return the best moves' principal variations, best first. Moves without visits are sorted by prior
        and have the first-play urgency as value."""

    def children(self, own_values: bool = False) -> list[ChildInfo]:
        """Return every searched root move, best first. own_values: include the network's own values."""

def evaluate_randomly(
    batch: Batch,
) -> tuple[NDArray[numpy.float32], NDArray[numpy.float32], NDArray[numpy.float32]]:
    """Return the `random` backend's results for a batch: (logits, wdl, moves_left)."""

class BatchRule:
    """Positions per request of a search: the arithmetic of BatchSizes, which documents the fields."""

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
    def wanted(self, visits: int, visits_in_flight: int) -> int: ...
    def fitting(self, milliseconds: float) -> int: ...
    def next(self, visits: int, visits_in_flight: int, in_time: int) -> tuple[int, int]:
        """Return the next batch's positions that get a visit (0: no batch), and its look-ahead positions.
        in_time: the largest batch that is computed in time."""

class Bursts:
    """Evaluator calls of a search without the interpreter (engine/core/exchange). Linux only.

    priority, target_ms: of its requests; None: no target. Counts of the last run: next_id (of the next
    request), evaluations and batches (sent), answers.
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
        interrupt: int,
    ) -> Literal["time", "look", "idle", "silence", "other"]:
        """Apply answers, collect and send until there is a reason to end, and return the reason. See
        engine/evaluation/bursts.py for the limits. Times are seconds from now.

        sent: batches in flight by request number. `sent` and `spare` are changed in place. content_hash: of
        the network; results of another one remain in the stream.
        """

"""
The native search core: chess rules, lc0 input encoding and the search tree.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


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

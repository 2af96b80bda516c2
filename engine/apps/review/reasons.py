# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a move is a mistake, in words. Each reason is a fact that the rules confirm along the engine's lines.

`reasons` looks at the reply that refutes the move first, then at the better move that it misses. It says
nothing that it cannot confirm: without a fact there is no reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import chess

VALUES = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9, chess.KING: 100}
MINORS = (chess.KNIGHT, chess.BISHOP)
SLIDERS = (chess.BISHOP, chess.ROOK, chess.QUEEN)
SOON = 6
"""Plies within which a line has to win something."""

LEAST_TACTIC = 2
"""Pawns that a tactic has to win."""

RESULTS = ("lost", "a draw", "won")
NUMBERS = ("no", "a", "two", "three", "four", "five", "six", "seven", "eight")


@dataclass(frozen=True, slots=True)
class MoveReason:
    """A fact. kind: what it is, such as `fork`. text: a sentence. missed: it is about the better move."""

    kind: str
    text: str
    missed: bool = False


@dataclass(frozen=True, slots=True)
class BoardLine:
    """A line of moves. boards: the positions before the moves, and the last. start: the position from which
    material is counted."""

    boards: tuple[chess.Board, ...]
    moves: tuple[chess.Move, ...]
    start: chess.Board

    @classmethod
    def of(cls, board: chess.Board, moves: Sequence[str], start: chess.Board | None = None) -> BoardLine:
        """Return the line of UCI moves from a board, whose moves before stay for repetitions."""
        boards, made = [board], []
        for uci in moves:
            made.append(boards[-1].parse_uci(uci))
            following = boards[-1].copy()
            following.push(made[-1])
            boards.append(following)
        return cls(tuple(boards), tuple(made), start or board)

    @property
    def attacker(self) -> chess.Color:
        return self.boards[0].turn

    def label(self) -> str:
        """Return the first move with its number, such as `23... Qxb2`."""
        return labelled(self.boards[0], self.moves[0])

    def quiet(self, ply: int) -> bool:
        """Return True if nothing is left to take after a ply."""
        board = self.boards[ply]
        return not board.is_check() and best_capture(board) <= 0

    def gained(self) -> int | None:
        """Return the first ply after which the attacker keeps something that it won, or None."""
        values = [balance(board, self.attacker) for board in self.boards]
        for ply in range(1, min(len(self.moves), SOON) + 1):
            if values[ply] > balance(self.start, self.attacker) and self.quiet(ply):
                later = [values[each] for each in range(ply, len(values)) if self.quiet(each)]
                return ply if min(later) >= values[ply] else None
        return None

    def ends_ahead(self, ply: int) -> bool:
        """Return True if the line has moves after a ply, and the attacker has won something at its end,
        whatever can be taken there."""
        last = self.boards[-1]
        loses = 0 if last.turn is self.attacker else max(0, best_capture(last))
        return len(self.moves) > ply and balance(last, self.attacker) - loses > balance(
            self.start, self.attacker
        )


@dataclass(frozen=True, slots=True)
class Known:
    """What a search proved of a position for its side to move. mate: moves to mate, negative for being mated.
    tables: 1, 0 or -1 if tablebases know the result."""

    mate: int | None = None
    tables: int | None = None


def labelled(board: chess.Board, move: chess.Move) -> str:
    return f"{board.fullmove_number}{'.' if board.turn else '...'} {board.san(move)}"


def exchange(board: chess.Board, move: chess.Move) -> int:
    """Return what a capture wins after the best captures on its square, in pawns."""
    taken = chess.PAWN if board.is_en_passant(move) else board.piece_type_at(move.to_square)
    gain = VALUES[taken] if taken and not board.is_castling(move) else 0
    if move.promotion:
        gain += VALUES[move.promotion] - 1
    following = board.copy(stack=False)
    following.push(move)
    return gain - max(0, recapture(following, move.to_square))


def recapture(board: chess.Board, square: int) -> int:
    """Return what the cheapest legal capture on a square wins; 0 without one."""
    captures = list(board.generate_legal_captures(to_mask=chess.BB_SQUARES[square]))
    if not captures:
        return 0
    return exchange(
        board, min(captures, key=lambda move: VALUES[board.piece_type_at(move.from_square) or chess.KING])
    )


def best_capture(board: chess.Board) -> int:
    """Return the most that one capture wins on its square."""
    return max((exchange(board, move) for move in board.generate_legal_captures()), default=0)


def name(board: chess.Board, square: int, *, place: bool = True) -> str:
    kind = chess.piece_name(board.piece_type_at(square) or chess.PAWN)
    return f"the {kind} on {chess.square_name(square)}" if place and kind != "king" else f"the {kind}"


def counted(pieces: Counter[int]) -> str:
    """Return pieces in words, such as `a rook and two pawns`."""
    words = []
    for kind in sorted(pieces, key=lambda each: -VALUES[each]):
        number, word = pieces[kind], chess.piece_name(kind)
        words.append(
            f"{'the' if kind == chess.QUEEN and number == 1 else NUMBERS[number]} {word}{'s' * (number > 1)}"
        )
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def material(board: chess.Board, color: chess.Color) -> Counter[int]:
    return Counter({kind: len(board.pieces(kind, color)) for kind in chess.PIECE_TYPES[:-1]})


def balance(board: chess.Board, color: chess.Color) -> int:
    return sum(VALUES[kind] * number for kind, number in material(board, color).items()) - sum(
        VALUES[kind] * number for kind, number in material(board, not color).items()
    )


def won(line: BoardLine, ply: int) -> tuple[int, str]:
    """Return what the attacker wins until a ply, in pawns and in words; no words if they would be long."""
    first, last, side = line.start, line.boards[ply], line.attacker
    value = balance(last, side) - balance(first, side)
    if any(move.promotion for move in line.moves[:ply]) or value <= 0:
        return value, ""
    taken = material(first, not side) - material(last, not side)
    given = material(first, side) - material(last, side)
    for kind in chess.PIECE_TYPES[:-1]:
        same = min(taken[kind], given[kind])
        taken[kind] -= same
        given[kind] -= same
    for one in MINORS:  # A bishop for a knight is an even trade.
        for other in MINORS:
            same = min(taken[one], given[other])
            taken[one] -= same
            given[other] -= same
    taken, given = +taken, +given
    if taken.total() > 3 or given.total() > 3 or not taken:
        return value, ""
    if given.total() == 1 and taken == Counter({chess.ROOK: 1}) and next(iter(given)) in MINORS:
        return value, "the exchange"
    return value, counted(taken) + (f" for {counted(given)}" if given else "")


def captures(line: BoardLine, until: int) -> list[tuple[int, int, int]]:
    """Return ply, origin and target of each capture of the attacker after the first move."""
    return [
        (ply, line.moves[ply].from_square, line.moves[ply].to_square)
        for ply in range(2, until, 2)
        if line.boards[ply].is_capture(line.moves[ply])
    ]


def fork(line: BoardLine, until: int) -> tuple[str, str] | None:
    """The piece that moved attacks two pieces, and takes one of them next."""
    board, move, side = line.boards[1], line.moves[0], line.attacker
    own = VALUES[board.piece_type_at(move.to_square) or chess.PAWN]
    targets = [
        square
        for square in chess.scan_forward(board.attacks_mask(move.to_square) & board.occupied_co[not side])
        if board.piece_type_at(square) != chess.PAWN
        and (
            VALUES[board.piece_type_at(square) or chess.PAWN] > own
            or not board.attackers_mask(not side, square)
        )
    ]
    if len(targets) < 2 or until < 3:
        return None
    then = line.moves[2]
    if then.from_square != move.to_square or then.to_square not in targets:
        return None
    targets.sort(key=lambda square: -VALUES[board.piece_type_at(square) or chess.PAWN])
    words = [name(board, square) for square in targets]
    return "fork", f"forks {', '.join(words[:-1])} and {words[-1]}"


def behind(board: chess.Board, slider: int, front: int) -> int | None:
    """Return the first occupied square behind another on a slider's ray."""
    ray = chess.ray(slider, front) & ~chess.between(slider, front) & ~chess.BB_SQUARES[slider]
    rest = [
        square
        for square in chess.scan_forward(ray & board.occupied)
        if square != front and chess.BB_SQUARES[front] & chess.between(slider, square)
    ]
    return min(rest, key=lambda square: chess.square_distance(slider, square), default=None)


def skewer(line: BoardLine, until: int) -> tuple[str, str] | None:
    """The piece that moved attacks one that has to leave, and then takes the one behind it."""
    board, move, side = line.boards[1], line.moves[0], line.attacker
    if until < 3 or board.piece_type_at(move.to_square) not in SLIDERS:
        return None
    leaves, takes = line.moves[1], line.moves[2]
    front = leaves.from_square
    if not board.attacks_mask(move.to_square) & chess.BB_SQUARES[front] or board.color_at(front) is side:
        return None
    back = behind(board, move.to_square, front)
    if (
        back is None
        or takes.from_square != move.to_square
        or takes.to_square != back
        or board.color_at(back) is side
    ):
        return None
    if VALUES[board.piece_type_at(front) or 1] < VALUES[board.piece_type_at(back) or 1]:
        return None
    return "skewer", f"skewers {name(board, front)} and {name(board, back)}"


def discovery(line: BoardLine, until: int) -> tuple[str, str] | None:
    """The move opens the line of another piece, which takes the piece that it attacks, or checks."""
    before, board, move, side = line.boards[0], line.boards[1], line.moves[0], line.attacker
    others = [square for kind in SLIDERS for square in board.pieces(kind, side) if square != move.to_square]
    king = board.king(not side)
    for slider in others:
        fresh = board.attacks_mask(slider) & ~before.attacks_mask(slider) & board.occupied_co[not side]
        if king is not None and fresh & chess.BB_SQUARES[king]:
            return "discovered check", f"gives a discovered check by {name(board, slider)}"
        for ply, origin, target in captures(line, min(until, 3)):
            if ply == 2 and origin == slider and fresh & chess.BB_SQUARES[target]:
                return (
                    "discovered attack",
                    f"discovers an attack by {name(board, slider)} on {name(board, target)}",
                )
    return None


def pin(line: BoardLine, until: int) -> tuple[str, str] | None:
    """A piece that may not leave the line of its king is attacked by the move, and taken later."""
    before, board, move, side = line.boards[0], line.boards[1], line.moves[0], line.attacker
    for _, _, target in captures(line, until):
        piece = board.piece_at(target)
        if (
            piece is None
            or piece.color is side
            or piece.piece_type == chess.PAWN
            or not board.is_pinned(not side, target)
        ):
            continue
        if (
            not board.attacks_mask(move.to_square) & chess.BB_SQUARES[target]
            or line.boards[3].piece_at(target) == piece
        ):
            continue
        if before.is_pinned(not side, target):
            return (
                "pin",
                f"attacks the pinned {chess.piece_name(piece.piece_type)} on {chess.square_name(target)}",
            )
        return "pin", f"pins {name(board, target)}"
    return None


def trapped(line: BoardLine, until: int) -> tuple[str, str] | None:
    """A piece that the move attacks is lost wherever it goes, and is taken later."""
    board, side = line.boards[1], line.attacker
    for ply, _, target in captures(line, min(until, 5)):
        came = (move.from_square for move in line.moves[1:ply:2] if move.to_square == target)
        origin = next(came, target)
        piece = board.piece_at(origin)
        if (
            piece is None
            or piece.color is side
            or piece.piece_type in (chess.PAWN, chess.KING)
            or board.is_check()
        ):
            continue
        threat = board.copy(stack=False)
        threat.push(chess.Move.null())
        if not any(
            exchange(threat, each) > 0
            for each in threat.generate_legal_captures(to_mask=chess.BB_SQUARES[origin])
        ):
            continue
        ways = list(board.generate_legal_moves(from_mask=chess.BB_SQUARES[origin]))
        if all(lost_there(board, way, piece.piece_type) for way in ways):
            return "trapped piece", f"traps {name(board, origin)}"
    return None


def lost_there(board: chess.Board, way: chess.Move, kind: int) -> bool:
    """Return True if a piece that goes this way is lost for less than its value."""
    following = board.copy(stack=False)
    following.push(way)
    taken = board.piece_type_at(way.to_square)
    return recapture(following, way.to_square) > (VALUES[taken] if taken else 0)


MOTIFS = (fork, skewer, discovery, pin, trapped)


def on_back_rank(board: chess.Board) -> bool:
    """Return True for mate by rook or queen along the king's first rank, behind its own pieces."""
    king = board.king(board.turn)
    rank = 0 if board.turn else 7
    if king is None or chess.square_rank(king) != rank:
        return False
    checkers = list(board.checkers())
    forward = [square for square in board.attacks(king) if chess.square_rank(square) != rank]
    return (
        len(checkers) == 1
        and board.piece_type_at(checkers[0]) in (chess.ROOK, chess.QUEEN)
        and chess.square_rank(checkers[0]) == rank
        and sum(board.color_at(square) is board.turn for square in forward) >= len(forward) - 1 > 0
    )


def mate_words(line: BoardLine, number: int) -> str:
    """Return `mate in 2`, and how if the line shows it."""
    last = line.boards[min(len(line.moves), 2 * number - 1)]
    return f"mate in {number}" + (" on the back rank" if last.is_checkmate() and on_back_rank(last) else "")


def tactic(line: BoardLine, played: chess.Move | None, fall: float) -> tuple[str, str] | None:
    """Return kind and words of what the line's first move wins, such as `forks … and wins a rook`.

    played: the move that allowed it, or None if the line is a missed chance. fall: what the engine says that
    the mistake lost, in pawns; a reason has to account for it.
    """
    ply = line.gained()
    if ply is None:
        return None
    value, words = won(line, ply)
    promoting = next((move for move in line.moves[:ply:2] if move.promotion), None)
    if promoting is not None and value >= LEAST_TACTIC:
        return "promotion", f"leads to a promotion on {chess.square_name(promoting.to_square)}"
    if not words or fall < value / 2 or (value < LEAST_TACTIC and not line.ends_ahead(ply)):
        return None
    first, move, square = line.boards[0], line.moves[0], line.moves[0].to_square
    if value >= LEAST_TACTIC:
        for motif in MOTIFS:
            if found := motif(line, ply):
                return found[0], f"{found[1]} and wins {words}"
    if first.is_capture(move):
        if exchange(first, move) <= 0:
            return None
        taken = "a pawn in passing" if first.is_en_passant(move) else name(first, square)
        # A line of a few moves shows that a single pawn is taken and not won back, but not what it is worth.
        says = f"takes {taken}" + (f" and wins {words}" if value >= LEAST_TACTIC else "")
        if played is None:
            return "capture", says
        if square == played.to_square:
            traded = value < LEAST_TACTIC and line.start.is_capture(played)
            return None if traded else ("en prise", says)
        if line.start.piece_at(square) == first.piece_at(square) and first.piece_at(square) is not None:
            kind = "hanging pawn" if first.piece_type_at(square) == chess.PAWN else "hanging piece"
            return kind, says
        return None
    if value >= LEAST_TACTIC and (target := threatened(line, ply)) is not None:
        return "attack", f"attacks {name(line.boards[1], target)} and wins {words}"
    return None


def threatened(line: BoardLine, until: int) -> int | None:
    """Return the square of a piece that the first move attacks, and that the attacker takes next."""
    board = line.boards[1].copy(stack=False)
    if board.is_check():
        return None
    board.push(chess.Move.null())
    for _, _, target in captures(line, min(until, 3)):
        takes = board.generate_legal_captures(to_mask=chess.BB_SQUARES[target])
        fresh = board.piece_at(target) and not line.boards[0].attackers_mask(line.attacker, target)
        if fresh and any(exchange(board, each) > 0 for each in takes):
            return target
    return None


def draws(line: BoardLine) -> str | None:
    """Return how a line ends the game as a draw, or None."""
    for board in line.boards[1:]:
        if board.is_stalemate():
            return "stalemate"
        if board.is_repetition(3):
            return "repetition"
    return None


def reasons(
    board: chess.Board,
    played: chess.Move,
    best: Sequence[str],
    reply: Sequence[str],
    before: Known,
    after: Known,
    fall: float,
) -> list[MoveReason]:
    """Return the reason why a move is a mistake, if there is one.

    board: before the move, with the moves that led to it. best: the engine's line from there. reply: its line
    after the move. before, after: what it proved of the two positions. fall: pawns that the move loses.
    """
    following = board.copy()
    following.push(played)
    better, refutation = BoardLine.of(board, best), BoardLine.of(following, reply, board)
    found: list[MoveReason] = []
    if after.mate is not None and after.mate > 0 and refutation.moves:
        text = f"Allows {mate_words(refutation, after.mate)}: {refutation.label()}."
        found.append(MoveReason("mate", text))
    elif before.mate is not None and before.mate > 0 and not (after.mate is not None and after.mate < 0):
        text = f"Misses {mate_words(better, before.mate)}: {better.label()}."
        found.append(MoveReason("missed mate", text, missed=True))
    elif before.tables is not None and after.tables is not None and before.tables > -after.tables:
        was, now = RESULTS[before.tables + 1], RESULTS[1 - after.tables]
        text = f"By the tablebases the position was {was}, and is {now} after the move."
        found.append(MoveReason("tablebase", text))
    elif better.moves and (way := draws(better)) and not draws(refutation):
        found.append(MoveReason(way, f"Misses a draw by {way}: {better.label()}.", missed=True))
    elif refutation.moves and (way := draws(refutation)):
        found.append(MoveReason(way, f"Allows a draw by {way}: {refutation.label()}."))
    elif refutation.moves and (won_by := tactic(refutation, played, fall)):
        found.append(MoveReason(won_by[0], f"{refutation.label()} {won_by[1]}."))
    elif better.moves and board.parse_uci(best[0]) != played and (won_by := tactic(better, None, fall)):
        text = f"Misses {better.label()}, which {won_by[1]}."
        found.append(MoveReason(f"missed {won_by[0]}", text, missed=True))
    return found

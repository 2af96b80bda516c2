# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes Syzygy files with random values, for material whose real tables are too large to be at hand.

The values mean nothing, but everything that a reader must know of the format is in them: any order of the
men and of the digits, codes of several lengths, symbols in any order, blocks, samples, lists of distances.
Another reader of the same file must read the same.
"""

import struct
from dataclasses import dataclass, field
from math import comb
from pathlib import Path
from random import Random

import chess
import numpy as np
from chess.syzygy import PFACTOR

from tests.engine.core.syzygy.positions import pieces_of

MAGIC = {".rtbw": b"\x71\xe8\x23\x5d", ".rtbz": b"\xd7\x66\x0c\xa5"}

BLOCK_BITS = 6
SPAN_BITS = 14
VALUES = 5
"""Different ones, from 0."""

MOST_VALUES = 1 << 16
"""Of a block."""

CODE = ((7, 32), (6, 16), (5, 16))
"""Lengths of the code's words and how many have them, which makes a complete code."""

SYMBOLS = sum(count for _, count in CODE)
POOL = 40
"""Different blocks; a part's blocks are drawn from them."""


@dataclass
class Distances:
    """What a DTZ file has besides: the side to move (0 White), lists of distances for wins, losses, cursed
    wins and blessed losses, with entries of 16 bits if wide, and what is in plies (1 wins, 2 losses)."""

    side: int = 0
    lists: list[list[int]] = field(default_factory=list)
    wide: bool = False
    plies: int = 0

    @property
    def flags(self) -> int:
        return self.side | (2 if self.lists else 0) | self.plies << 2 | (16 if self.wide else 0)


@dataclass
class Part:
    """The values of one side to move with the leading pawn on one file: the men's codes in order, the digits
    of the leading group and of the other side's pawns, and how many values there are."""

    codes: list[int]
    digits: tuple[int, int]
    size: int


def write_table(
    path: Path, random: Random, *, only_value: int | None = None, distances: Distances | None = None
) -> None:
    """Write a file for the material of the path's name, its kind that of the path's suffix. only_value:
    the value of all positions instead of random ones from 0 to 4."""
    pieces = pieces_of(path.stem)
    pawns = any(piece.piece_type == chess.PAWN for piece in pieces)
    white, black = path.stem.split("v")
    both_sides = path.suffix == ".rtbw" and sorted(white) != sorted(black)
    lead = _leading_pawns(pieces, random)
    files = [[_part(pieces, lead, file, random) for _ in range(2)] for file in range(4 if pawns else 1)]
    data = bytearray(MAGIC[path.suffix])
    data.append((1 if both_sides else 0) | (2 if pawns else 0))
    for low, high in files:
        data.append(low.digits[0] | high.digits[0] << 4)
        if lead is not None and any(piece.piece_type == chess.PAWN and piece != lead for piece in pieces):
            data.append(low.digits[1] | high.digits[1] << 4)
        data += bytes(a | b << 4 for a, b in zip(low.codes, high.codes, strict=True))
    _align(data, 2)

    parts = [part for pair in files for part in pair[: 1 + both_sides]]
    sections = []
    for part in parts:
        flags = 0 if distances is None else distances.flags
        if only_value is not None:
            data += bytes((0x80 | flags, only_value))
            continue
        header, samples, lengths, blocks = _compressed(part.size, random)
        data += bytes([flags]) + header
        sections.append((samples, lengths, blocks))
    if distances is not None and distances.lists:
        for _ in parts:
            _add_lists(data, distances)
        _align(data, 2)
    for index in range(2):
        for section in sections:
            data += section[index]
    for section in sections:
        _align(data, 64)
        data += section[2]
    _align(data, 64)
    path.write_bytes(bytes(data) + random.randbytes(16))


def _align(data: bytearray, unit: int) -> None:
    data += bytes(-len(data) % unit)


def _add_lists(data: bytearray, distances: Distances) -> None:
    if distances.wide:
        _align(data, 2)
    for entries in distances.lists:
        kind = "H" if distances.wide else "B"
        data += struct.pack(f"<{kind}{len(entries)}{kind}", len(entries), *entries)


# -- the order of the men ------------------------------------------------------------------------------------


def _leading_pawns(pieces: list[chess.Piece], random: Random) -> chess.Piece | None:
    """The pawns that lead: those of the side that has fewer, but some."""
    counts = {color: pieces.count(chess.Piece(chess.PAWN, color)) for color in chess.COLORS}
    having = [color for color in chess.COLORS if counts[color]]
    if not having:
        return None
    return chess.Piece(chess.PAWN, min(having, key=lambda color: (counts[color], not color)))


def _part(pieces: list[chess.Piece], lead: chess.Piece | None, file: int, random: Random) -> Part:
    kinds = list(dict.fromkeys(pieces))
    random.shuffle(kinds)
    count = {kind: pieces.count(kind) for kind in kinds}
    single = [kind for kind in kinds if count[kind] == 1]
    other_pawns = None
    if lead is not None:
        first = [lead]
        other = chess.Piece(chess.PAWN, not lead.color)
        if other in count:
            other_pawns = other
        placements = PFACTOR[count[lead] - 1][file]
    elif len(single) >= 3:
        first, placements = single[:3], 31332
    else:
        first, placements = [chess.Piece(chess.KING, color) for color in random.sample(chess.COLORS, 2)], 462
    rest = [kind for kind in kinds if kind not in first and kind != other_pawns]
    order = [*first, *([other_pawns] if other_pawns else []), *rest]
    groups = 1 + (other_pawns is not None) + len(rest)
    leading_digit, pawns_digit = random.sample(range(groups), 2) if groups > 1 else (0, 15)
    if other_pawns is None:
        pawns_digit = 15
    size = placements
    free = 64 - sum(count[kind] for kind in first)
    if other_pawns is not None:
        size *= comb(free - 16, count[other_pawns])
        free -= count[other_pawns]
    for kind in rest:
        size *= comb(free, count[kind])
        free -= count[kind]
    codes = [kind.piece_type + (0 if kind.color else 8) for kind in order for _ in range(count[kind])]
    return Part(codes, (leading_digit, pawns_digit), size)


# -- values --------------------------------------------------------------------------------------------------


class _Symbols:
    """A code's symbols: how many values each stands for, its two halves, and its word."""

    def __init__(self, values: int, random: Random) -> None:
        numbers = random.sample(range(SYMBOLS), SYMBOLS)  # Which number a symbol has tells nothing of it.
        self.length = [0] * SYMBOLS
        self.halves = [(0, 0xFFF)] * SYMBOLS
        made: list[int] = []
        for nth, number in enumerate(numbers):
            if nth < values:
                self.length[number], self.halves[number] = 1, (nth, 0xFFF)
            else:
                recent = made[-12:]
                pair = random.choice(recent), random.choice(recent)
                if nth < 2 * values:
                    pair = made[nth - values], random.choice(made[:values])  # So that each value is in use.
                if sum(self.length[half] for half in pair) > MOST_VALUES // 16:
                    pair = random.choice(made[:values]), random.choice(made[: values + 8])
                self.length[number] = sum(self.length[half] for half in pair)
                self.halves[number] = pair
            made.append(number)
        self.single = numbers[0]

    def word(self, symbol: int) -> tuple[int, int]:
        """The bits and their number. Longer words are smaller, and have the lower symbols."""
        first_symbol, first_word, before = 0, 0, CODE[0][0]
        for length, count in CODE:
            first_word >>= before - length
            if symbol < first_symbol + count:
                return first_word + symbol - first_symbol, length
            first_symbol += count
            first_word += count
            before = length
        raise AssertionError

    def packed(self) -> bytes:
        data = bytearray()
        for left, right in self.halves:
            data += bytes((left & 0xFF, left >> 8 | (right & 0xF) << 4, right >> 4))
        return bytes(data) + bytes(SYMBOLS & 1)


def _block(symbols: _Symbols, random: Random, values: int | None = None) -> tuple[bytes, int]:
    """A block's bytes and how many values it has: random, or exactly so many."""
    bits, used, held = 0, 0, 0
    while True:
        fitting = [s for s in range(SYMBOLS) if values is None or symbols.length[s] <= values - held]
        symbol = random.choice(fitting) if values is None else max(fitting, key=lambda s: symbols.length[s])
        word, length = symbols.word(symbol)
        if used + length > 8 << BLOCK_BITS or held + symbols.length[symbol] > MOST_VALUES:
            assert values is None
            break
        bits, used, held = bits << length | word, used + length, held + symbols.length[symbol]
        if held == values:
            break
    return (bits << (8 << BLOCK_BITS) - used).to_bytes(1 << BLOCK_BITS, "big"), held


def _compressed(size: int, random: Random) -> tuple[bytes, bytes, bytes, bytes]:
    """Header (without flags), samples, lengths and blocks of so many random values."""
    symbols = _Symbols(VALUES, random)
    pool = [_block(symbols, random) for _ in range(POOL)]
    pool_lengths = np.array([length for _, length in pool], np.int64)
    drawn = np.random.default_rng(random.getrandbits(32)).integers(
        POOL, size=2 + size // int(pool_lengths.min())
    )
    ends = np.cumsum(pool_lengths[drawn])
    whole = int(np.searchsorted(ends, size))  # The block that holds the last value is cut or made anew.
    drawn = drawn[:whole]
    before = int(ends[whole - 1]) if whole else 0
    lengths = list(pool_lengths[drawn])
    blocks = [np.array([np.frombuffer(data, np.uint8) for data, _ in pool])[drawn].tobytes()]
    while before < size:
        rest = min(size - before, symbols.length[symbols.single] * 40)
        data, length = _block(symbols, random, rest)
        blocks.append(data)
        lengths.append(length)
        before += length
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    middles = np.arange(0, size, 1 << SPAN_BITS) + (1 << SPAN_BITS - 1)
    holding = np.searchsorted(starts, np.minimum(middles, size - 1), side="right") - 1
    # The last sample may lie past the end; so that its place is not too large, it is that of a padding block.
    samples = np.zeros(len(middles), np.dtype([("block", "<u4"), ("place", "<u2")]))
    samples["block"], samples["place"] = holding, middles - starts[holding]
    padding = 3
    header = struct.pack("<BBBIBB", BLOCK_BITS, SPAN_BITS, padding, len(lengths), CODE[0][0], CODE[-1][0])
    first_symbols, first = {}, 0
    for length, count in CODE:
        first_symbols[length] = first
        first += count
    header += b"".join(struct.pack("<H", first_symbols[length]) for length in sorted(first_symbols))
    header += struct.pack("<H", SYMBOLS) + symbols.packed()
    counts = np.array([*lengths, *[MOST_VALUES] * padding]) - 1
    return header, samples.tobytes(), counts.astype("<u2").tobytes(), b"".join(blocks)

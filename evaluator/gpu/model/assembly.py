# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses assembly into the innermost loop that multiplies and the rest.

AMD's (clang -S) has comments with the loop of each block; in PTX a loop is between a label and a jump back to
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_AMD_BLOCK = re.compile(r"^(?:\.L(BB\d+_\d+):|; %bb\.\d+:)")
_AMD_HEADER = re.compile(r"Loop Header: Depth=\d+")
_AMD_MEMBER = re.compile(r"in Loop: Header=(BB\d+_\d+)")
_PTX_LABEL = re.compile(r"^\$(L__BB\d+_\d+):")
_PTX_JUMP = re.compile(r"\bbra(?:\.uni)?\s+\$(L__BB\d+_\d+)")


@dataclass(slots=True)
class _Block:
    """loop: label of the innermost loop's header; empty outside of loops."""

    label: str
    loop: str = ""
    instructions: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Listing:
    """Instructions of the loop with most multiplications, in execution order, and all others."""

    loop: tuple[str, ...]
    rest: tuple[str, ...]


def amd_listing(text: str, multiplies: Callable[[str], bool]) -> Listing:
    """Parse clang's assembly of one kernel. multiplies: True for product instructions."""
    blocks = [_Block("")]
    for line in text.splitlines():
        start = _AMD_BLOCK.match(line)
        if line.startswith("\t.section") and len(blocks) > 1:
            break
        if start is not None:
            blocks.append(_Block(start[1] or ""))
        block, comment = blocks[-1], line.partition(";")[2]
        if start is not None or (line.lstrip().startswith(";") and not block.instructions):
            if member := _AMD_MEMBER.search(comment):
                block.loop = member[1]
            elif _AMD_HEADER.search(comment):
                block.loop = block.label
        instruction = line.partition(";")[0].strip()
        if line.startswith("\t") and instruction and not instruction.startswith("."):
            block.instructions.append(instruction)
    return _split(blocks, multiplies)


def ptx_listing(text: str, multiplies: Callable[[str], bool]) -> Listing:
    """Parse NVRTC's PTX of one kernel."""
    blocks = [_Block("")]
    for line in text.splitlines():
        if label := _PTX_LABEL.match(line):
            blocks.append(_Block(label[1]))
        instruction = line.strip().rstrip(";")
        if line.startswith("\t") and instruction and instruction[0] not in ".{}/":
            blocks[-1].instructions.append(instruction)
            if _PTX_JUMP.search(instruction):
                blocks.append(_Block(""))
    places = {block.label: index for index, block in enumerate(blocks)}
    # Inner loops come last, so that they claim their blocks.
    jumps = [
        (places[jump[1]], index)
        for index, block in enumerate(blocks)
        for instruction in block.instructions
        if (jump := _PTX_JUMP.search(instruction)) and places.get(jump[1], index + 1) <= index
    ]
    for first, last in sorted(jumps, key=lambda jump: jump[0] - jump[1]):
        for block in blocks[first : last + 1]:
            block.loop = blocks[first].label
    return _split(blocks, multiplies)


def _split(blocks: Sequence[_Block], multiplies: Callable[[str], bool]) -> Listing:
    counts: dict[str, int] = {}
    for block in blocks:
        if block.loop:
            counts[block.loop] = counts.get(block.loop, 0) + sum(map(multiplies, block.instructions))
    hot = max(counts, key=counts.__getitem__, default="")
    if not counts.get(hot):
        return Listing((), tuple(each for block in blocks for each in block.instructions))
    inside = [block for block in blocks if block.loop == hot]
    header = next(index for index, block in enumerate(inside) if block.label == hot)
    inside = inside[header:] + inside[:header]
    return Listing(
        tuple(each for block in inside for each in block.instructions),
        tuple(each for block in blocks if block.loop != hot for each in block.instructions),
    )

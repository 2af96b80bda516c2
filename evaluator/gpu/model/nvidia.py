# SPDX-License-Identifier: GPL-3.0-or-later
"""Work of kernels on NVIDIA GPUs, computed as for AMD, for comparing the model with measurements.

LLVM has no scheduling models for these targets. So the cycles are a table of issue rates of a quarter of a
multiprocessor (CUDA C++ Programming Guide, table of arithmetic throughput), with latencies from
microbenchmarks (Luo and others, arXiv 2402.13499). PTX differs from the machine code: ptxas removes and moves
instructions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from evaluator.gpu.driver.compiler import source
from evaluator.gpu.driver.target import Target
from evaluator.gpu.inspect.resources import measure
from evaluator.gpu.inspect.resources import unavailable as no_compiler
from evaluator.gpu.inspect.variants import Variant
from evaluator.gpu.model.assembly import ptx_listing
from evaluator.gpu.model.cards import Card
from evaluator.gpu.model.code import Code, Work

_FLOP_OF_PRODUCT = 2 * 16 * 8 * 16
_LANES = 32
_ISSUE = {"ex2": 8.0, "rcp": 8.0, "rsqrt": 8.0, "lg2": 8.0, "cvt": 2.0, "mul": 1.0, "fma": 1.0, "shfl": 2.0}
"""Cycles per instruction; all others take 1."""

_LATENCY = {"mma": 33.0, "ldmatrix": 33.0, "ld": 33.0, "ex2": 20.0, "shfl": 25.0}
_USUAL_LATENCY = 5.0

_FREE = ("mov", "bar", "bra", "ret", "griddepcontrol", "setp", "cvta", "selp")
"""Free instructions: ptxas folds most of these into others, or they wait for other units."""

_REGISTER = re.compile(r"%[a-z]+\d+")


def unavailable(target: Target) -> str | None:
    """Return why kernels cannot be analysed here; None if they can."""
    return no_compiler(target)


def code_of(variant: Variant, target: Target, card: Card) -> Code:
    """Compile and analyse a kernel. Raises CompilationError."""
    from evaluator.gpu.driver.nvidia import compile_to_ptx

    key = variant.key
    text = compile_to_ptx(source(key.file), key.file, (*key.options, *target.options), target)
    listing = ptx_listing(text, lambda instruction: instruction.startswith("mma"))
    stages = dict(key.constants).get("STAGES", 2)
    return Code(
        _work(listing.loop, card), _work(listing.rest, card), measure(variant, target), max(1, stages - 1)
    )


def _work(instructions: Sequence[str], card: Card) -> Work:
    matrix = vector = shared = loaded = 0.0
    products = 0
    mix: Counter[str] = Counter()
    ready: dict[str, float] = {}
    end = issued = 0.0
    for instruction in instructions:
        predicated = instruction.startswith("@")
        name, _, operands = (instruction.split(None, 1)[-1] if predicated else instruction).partition(" ")
        name, _, rest = name.partition(".")
        kind, cycles = _kind(name, rest), 0.0
        mix[kind] += 1
        if kind == "matrix":
            cycles = _FLOP_OF_PRODUCT / card.matrix
            matrix, products = matrix + cycles, products + 1
        elif kind == "vector" and name not in _FREE:
            cycles = _ISSUE.get(name, 1.0)
            vector += cycles
        elif kind == "shared":
            shared += _LANES * _bytes(name, rest) / 128
        elif kind == "memory" and name in ("ld", "cp"):
            loaded += _LANES * _bytes(name, rest)
            if name == "cp":
                shared += _LANES * _bytes(name, rest) / 128
        # Each wave waits for its operands in program order.
        issued += cycles
        read = _REGISTER.findall(operands)
        begins = max((ready.get(register, 0.0) for register in read), default=0.0)
        done = begins + _LATENCY.get(name if kind != "memory" else "", _USUAL_LATENCY)
        written = operands.partition("}")[0] if operands.startswith("{") else operands.partition(",")[0]
        ready |= dict.fromkeys(_REGISTER.findall(written), done)
        end = max(end, done)
    return Work(matrix, vector, shared, loaded, max(end, issued), loaded > 0, products, mix=mix)


def _kind(name: str, rest: str) -> str:
    if name == "mma":
        return "matrix"
    if name == "ldmatrix" or (name in ("ld", "st") and "shared" in rest):
        return "shared"
    if name in ("ld", "st", "cp", "red", "atom"):
        return "memory" if "global" in rest else "scalar"
    return "vector"


def _bytes(name: str, rest: str) -> int:
    """Return the bytes that a lane moves."""
    if name == "ldmatrix" or (name == "cp" and "async.cg" in rest):
        return 16
    wide = 4 if ".v4" in rest else 2 if ".v2" in rest else 1
    return wide * (8 if rest.endswith("64") else 4)

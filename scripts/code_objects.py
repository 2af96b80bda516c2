# SPDX-License-Identifier: GPL-3.0-or-later
"""Compile the AMD kernels that releases ship: `python -m scripts.code_objects FILE`. Prints the file's path.

SHIPPED lists the networks. Each is planned with every tile of every product, so that measurements on any GPU
choose among what is shipped. WAVEFRONT_TEST_CACHE names a folder that remembers compiled kernels. The same
sources and compilers make the same file.
"""

from __future__ import annotations

import argparse
import hashlib
import lzma
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgpack

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import AMD_FLAGS, KernelKey, source
from evaluator.backends.gpu.driver.shipped import ARCHIVE, MACHINES, digest
from evaluator.backends.gpu.driver.target import MatrixUnit, Precision, Target, amd_target
from evaluator.backends.gpu.plan import fp8
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.tiles import Choice, candidates, model_chooser
from evaluator.backends.gpu.run.buckets import BUCKETS
from evaluator.network import load_network
from evaluator.network.random_network import SHAPES, NetworkShape, random_network
from evaluator.network.schema import PolicyFormat
from evaluator.network.spec import AttentionBody, NetworkSpec
from scripts import amd_compilers

NETWORKS = Path(__file__).resolve().parents[1] / "evaluator" / "networks"


def _residual(width: int, squeeze: int, **more: object) -> NetworkShape:
    shape = replace(SHAPES["maia"], width=width, se=squeeze, wdl=True, moves_left=True)
    return replace(shape, **more)  # type: ignore[arg-type]


def _attention(width: int, heads: int, ffn: int, smolgen: tuple[int, int, int]) -> NetworkShape:
    return replace(SHAPES["t82"], width=width, heads=heads, ffn=ffn, smolgen=smolgen, policy_width=width)


SHIPPED: dict[str, NetworkShape] = {
    "maia": SHAPES["maia"],
    "10x128": _residual(128, 32),
    "10x128, SE of 8": _residual(128, 8),
    "10x128, classical policy": _residual(128, 32, policy=PolicyFormat.CLASSICAL),
    "15x192": _residual(192, 16),
    "15x192, SE of 32": _residual(192, 32),
    "20x256": _residual(256, 32),
    "20x256 without WDL": _residual(256, 32, wdl=False, moves_left=False),
    "20x256, classical policy": _residual(256, 32, policy=PolicyFormat.CLASSICAL),
    "24x320": _residual(320, 32),
    "T1 256x10": _attention(256, 8, 512, (32, 256, 256)),
    "T1 256x10, smolgen 128": _attention(256, 8, 512, (32, 256, 128)),
    "T1 512x15": _attention(512, 16, 1024, (32, 256, 256)),
    "T80": SHAPES["t80"],
    "T82": SHAPES["t82"],
    "BT3": replace(SHAPES["t82"], dense_embedding=512, multihead=True, value_channels=128),
    "BT4": SHAPES["bt4"],
}
"""Shapes by name, in addition to the included networks."""

_SIZES, _ORDERS = (*BUCKETS, 9, 10, 12, 21), (1, 32, 256)
"""Batch sizes with every kernel that is no product (`expand` divides a small batch in 1 to 8 parts), and one
for each order of work in a plan."""


@cache
def networks() -> dict[str, NetworkSpec]:
    """Return two layers of each network: the others have the same kernels."""
    made = {
        name: random_network(replace(shape, layers=min(shape.layers, 2), blocks=min(shape.blocks, 1)))
        for name, shape in SHIPPED.items()
    }
    for path in sorted(NETWORKS.glob("*.pb.gz")):
        network = load_network(path)
        assert isinstance(network.body, AttentionBody)
        body = replace(network.body, encoders=network.body.encoders[:2])
        made[path.name] = replace(network, body=body)
    return made


def kernels(network: NetworkSpec, target: Target) -> set[KernelKey]:
    """Return every kernel that may run a network in fp16, and in fp8 and bf16 if the matrix unit has it."""
    precision = Precision.FP16
    plans = [Plan(network, target, precision, model_chooser(target, precision, 1))]
    if isinstance(network.body, AttentionBody) and not target.no_e4m3:
        plans.append(replace(plans[0], rounded=fp8.rounded_network(network), weights={}, _linears={}))
    found: set[KernelKey] = set()
    for plan in plans:
        for fused in (True, False):  # norms are left to their readers, or not
            found |= _with_every_tile(replace(plan, fused=fused))
    # A product takes the norm of any tile's rows.
    parts = {value for key in found for name, value in key.constants if name == "NORM_PARTS" and value}
    for key in [*found]:
        constants = dict(key.constants)
        for value in parts if constants.get("NORM_PARTS") else ():
            found.add(replace(key, constants=tuple({**constants, "NORM_PARTS": value}.items())))
    if target.unit is not MatrixUnit.FMA:  # bf16 has the same tiles
        found |= {replace(key, precision=Precision.BF16) for key in found if not _is_e4m3(key)}
    return found


def _is_e4m3(key: KernelKey) -> bool:
    constants = dict(key.constants)
    return bool(constants.get("FORMAT") or constants.get("ROUND"))


def _with_every_tile(plan: Plan) -> set[KernelKey]:
    found: set[KernelKey] = set()
    for split in (False, True):  # norms are left to their readers where no product is split
        turn, turns = 0, 1
        while turn < turns:

            def choose(product: Product, turn: int = turn, split: bool = split) -> Choice:
                nonlocal turns
                possible = candidates(product, plan.target, plan.precision)
                # The number of splits does not change the code.
                splits = {each.tile: each for each in possible if each.splits > 1}
                different = [*splits.values()] if split and splits else [c for c in possible if c.splits == 1]
                turns = max(turns, len(different))
                return different[turn % len(different)]

            each = replace(plan, choose=choose)
            for size in _ORDERS if turn or split else _SIZES:
                found |= {key for key, _ in each.program(size).kernels()}
            turn += 1
    return found


def wanted(target: Target) -> list[KernelKey]:
    """Return the kernels of all networks for a target, ordered so that similar ones are neighbours."""
    found = {key for network in networks().values() for key in kernels(network, target)}
    return sorted(found, key=lambda key: (key.file, key.precision.value, key.constants))


def compiled(key: KernelKey, target: Target) -> bytes:
    """Return a kernel's code object without symbols that only linkers need. Raises CompilationError."""
    options = (*AMD_FLAGS, *key.options, *target.options, "-fuse-cuid=none", "-Wl,--strip-all")
    parts = (source(key.file), target.name, *options, amd_compilers.version(target.name))
    folder = os.environ.get("WAVEFRONT_TEST_CACHE")
    kept = Path(folder, "code", hashlib.sha256("\0".join(parts).encode()).hexdigest()) if folder else None
    if kept is not None and kept.exists():
        return kept.read_bytes()
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / f"{key.file}.hip"
        path.write_text(source(key.file), "utf-8")
        out = path.with_suffix(".co")
        amd_compilers.compile_file(path, target.name, options, out)
        code = out.read_bytes()
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_name(f"{kept.name}.{os.getpid()}")
        unfinished.write_bytes(code)
        unfinished.replace(kept)
    return code


def member(name: str, keys: Iterable[KernelKey], jobs: int) -> bytes:
    """Return a family's member of the archive."""
    target, keys = amd_target(name), list(keys)
    with ThreadPoolExecutor(jobs) as pool:
        codes = pool.map(lambda key: compiled(key, target), keys)
        objects = {
            digest(source(key.file), (*key.options, *target.options), name): code
            for key, code in zip(keys, codes, strict=True)
        }
    return packed(objects)


def packed(objects: dict[bytes, bytes]) -> bytes:
    """Return a member's bytes. objects: by digest, similar ones next to each other."""
    return lzma.compress(msgpack.packb(objects), preset=9 | lzma.PRESET_EXTREME)


def write(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write the archive, whose bytes depend on the members only."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data)


def _members(names: Iterable[str], jobs: int) -> Iterator[tuple[str, bytes]]:
    for name in names:
        if reason := amd_compilers.unavailable(name):
            sys.exit(f"error: {name} cannot be compiled: {reason}")
        keys = wanted(amd_target(name))
        data = member(name, keys, jobs)
        print(f"{name}: {len(keys)} kernels, {len(data) / 1e6:.2f} MB", file=sys.stderr, flush=True)
        yield name, data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help=f"usually a folder's {ARCHIVE}")
    parser.add_argument("--family", action="append", choices=MACHINES, help="may be repeated (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers that run at once")
    arguments = parser.parse_args()
    write(arguments.file, _members(arguments.family or MACHINES, arguments.jobs))
    print(arguments.file.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())

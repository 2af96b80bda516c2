# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds or compiles a kernel's source with its constants and loads it. Machine code is cached on disk.

A kernel is one file of evaluator/backends/gpu/kernels with its constants (tile shapes, widths, activations:
`-DNAME=VALUE`). Includes are pasted in, so that every compiler gets a single source and the cache key covers
every change. The key has source, target, options and the compiler's version; a damaged entry is compiled
again. Kernels that are shipped compiled (shipped.py) need neither cache nor compiler.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgpack

from evaluator.backends.common.caching import cached_file, keep
from evaluator.backends.gpu.driver.device import CompilationError, DeviceError, Gpu
from evaluator.backends.gpu.driver.shipped import ShippedObjects
from evaluator.backends.gpu.driver.target import Precision

log = logging.getLogger(__name__)

KERNELS = Path(__file__).resolve().parents[1] / "kernels"

AMD_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fno-strict-aliasing")
"""Options of every compiler for AMD. The last one allows access to elements through other types."""

_SCRATCH = b".private_segment_fixed_size"
"""The memory per thread outside the registers, in an AMD code object's metadata (LLVM's AMDGPU user guide,
"Code Object V5 Metadata")."""

_INCLUDE = re.compile(r'^#include "([a-z0-9_]+\.h)"$')
_CHECKSUM_BYTES = 32


@dataclass(frozen=True, slots=True)
class KernelKey:
    """A compiled kernel: `kernels/FILE.hip` with its constants. The kernel has the file's name."""

    file: str
    precision: Precision
    constants: tuple[tuple[str, int], ...]

    @property
    def options(self) -> tuple[str, ...]:
        return (
            f"-DELEMENT_{self.precision.name}=1",
            *(f"-D{name}={value}" for name, value in self.constants),
        )

    def __str__(self) -> str:
        return f"{self.file} ({self.precision.value}, {', '.join(f'{n}={v}' for n, v in self.constants)})"


@cache
def source(file: str) -> str:
    """Return `kernels/FILE.hip` with its includes pasted in, each once."""
    seen: set[str] = set()

    def read(name: str) -> str:
        lines = []
        for line in (KERNELS / name).read_text("utf-8").splitlines():
            include = _INCLUDE.match(line)
            if include is None:
                if line != "#pragma once":
                    lines.append(line)
            elif include[1] not in seen:
                seen.add(include[1])
                lines.append(read(include[1]))
        return "\n".join(lines)

    return read(f"{file}.hip") + "\n"


def scratch_bytes(code: bytes) -> int:
    """Return the memory that a kernel uses per thread outside the registers, such as for spilled ones.

    code: of one kernel; 0 for code that is not AMD's.
    """
    _, name, value = code.partition(_SCRATCH)
    if not name:
        return 0
    unpacker = msgpack.Unpacker()
    unpacker.feed(value[:9])
    return int(unpacker.unpack())


_compiling: dict[Path, threading.Lock] = {}
"""Held while a kernel is compiled into its file."""


class Compiler:
    """The kernels of one device. Not thread-safe: kernels are loaded while a network is being opened."""

    def __init__(self, device: Gpu, *, cache_folder: Path | None = None, use_cache: bool = True) -> None:
        """cache_folder: default the platform's."""
        self._device = device
        self._folder = cached_file("kernels") if use_cache and cache_folder is None else cache_folder
        self._keeps = use_cache
        """False once the cache could not be written."""
        self._loaded: dict[tuple[KernelKey, int], Any] = {}
        self._codes: dict[KernelKey, Future[bytes]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._shipped = ShippedObjects(device.info.target.name)
        self.compiled = 0
        """Number of kernels that were neither shipped nor in the cache."""

    def start(self, wanted: Iterable[KernelKey]) -> None:
        """Start compiling kernels concurrently, in order: name slow ones first. `load` waits for the kernels
        that it needs."""
        for key in wanted:
            if key not in self._codes:
                if self._pool is None:  # compilers release the GIL
                    self._pool = ThreadPoolExecutor(min(16, os.cpu_count() or 1), "compiler")
                self._codes[key] = self._pool.submit(self._code, key)

    def load(self, wanted: Sequence[tuple[KernelKey, int]]) -> dict[tuple[KernelKey, int], Any]:
        """Return loaded kernels by key and dynamic shared memory in bytes. Kernels that were not started are
        compiled now. Raises CompilationError."""
        new = [each for each in dict.fromkeys(wanted) if each not in self._loaded]
        self.start(key for key, _ in new)
        try:
            for key, shared_bytes in new:
                kernel = self._device.load(self._codes[key].result(), key.file, shared_bytes)
                self._loaded[key, shared_bytes] = kernel
        except DeviceError:
            self.finish()
            raise
        return {each: self._loaded[each] for each in wanted}

    def scratch_bytes(self, key: KernelKey) -> int:
        """Return `scratch_bytes` of a kernel's code, after compiling it. Raises CompilationError."""
        self.start([key])
        return scratch_bytes(self._codes[key].result())

    def finish(self) -> None:
        """Cancel the kernels that have not begun, and end the threads. `start` makes new ones."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
            self._codes = {}

    @cached_property
    def _version(self) -> str:
        try:
            return self._device.compiler_version()
        except DeviceError as error:
            raise CompilationError(
                f"kernels of this network are not shipped for {self._device.info.target.name}, and there is "
                f"no compiler ({error}): use an included network, on Linux install ROCm with hipRTC, on "
                "Windows use --backend onnx:provider=directml"
            ) from error

    def _code(self, key: KernelKey) -> bytes:
        text = source(key.file)
        options = (*key.options, *self._device.info.target.options)
        shipped = self._shipped.code(text, options)
        if shipped is not None:
            return shipped
        parts = [text, self._device.info.target.name, *options, self._version]
        digest = hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:32]
        path = None if self._folder is None else self._folder / f"{key.file}-{digest}.bin"
        # Equal devices that open concurrently need the same kernels.
        with _compiling.setdefault(path, threading.Lock()) if path and self._keeps else nullcontext():
            code = None if path is None else _read(path)
            if code is not None:
                return code
            log.debug("compiling %s", key)
            code = self._device.compile(text, key.file, options)
            self.compiled += 1
            if self._keeps:
                self._keeps = keep(path, hashlib.sha256(code).digest() + code)
            return code


def _read(path: Path) -> bytes | None:
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    checksum, code = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
    return code if code and hashlib.sha256(code).digest() == checksum else None

# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in HIP runtime of this folder: built once per test run, loaded into this process, and told what
to be. See standin.h for what it does; `Strategy` is the seam for other ways to run kernels.

    runtime = standin.load(folder)             # before anything asks hip-python for a library
    runtime.reset("gfx942;gfx1151,integrated=1,memory_mb=512")
    ... everything of evaluator/backends/gpu, through hip-python ...
    assert runtime.report().misuse == []
"""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
RUNTIME_SOURCES = ("control.cc", "memory.cc", "streams.cc", "modules.cc", "fiber_strategy.cc")

COMPILATION_FAILED, NO_BINARY_FOR_GPU, NOT_FOUND, LAUNCH_FAILURE = 6, 209, 500, 719
"""What a Strategy's functions may answer instead of 0."""

_COMPILE = CFUNCTYPE(c_int, c_char_p, c_char_p, POINTER(c_char_p), c_int, c_void_p)
_LOAD = CFUNCTYPE(c_int, c_void_p, c_size_t, c_char_p, POINTER(c_void_p))
_FUNCTION = CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(c_void_p))
_LAUNCH = CFUNCTYPE(c_int, c_void_p, POINTER(c_uint), POINTER(c_uint), c_uint, c_void_p, c_size_t)
_UNLOAD = CFUNCTYPE(None, c_void_p)

Size = tuple[int, int, int]


class _CStrategy(ctypes.Structure):
    _fields_ = (
        ("compile", _COMPILE),
        ("load", _LOAD),
        ("function", _FUNCTION),
        ("launch", _LAUNCH),
        ("unload", _UNLOAD),
    )


class Strategy(ABC):
    """How kernels are compiled and run; subclass it and pass it to `Runtime.set_strategy`.

    Modules and kernels are any Python objects. An exception in `compile` is a source that does not compile,
    its text the log; in `load` or `function` it is NO_BINARY_FOR_GPU or NOT_FOUND; in `launch` it fails the
    device. Every method is called without locks, from whatever thread compiles or waits.
    """

    @abstractmethod
    def compile(self, source: str, name: str, options: list[str]) -> tuple[bytes, str]:
        """Machine code (an ELF file) and the log."""

    @abstractmethod
    def load(self, code: bytes, target: str) -> Any:
        """A module. target: of the device it is loaded on, as "gfx1100"."""

    @abstractmethod
    def function(self, module: Any, name: str) -> Any:
        """A kernel of a module."""

    @abstractmethod
    def launch(self, function: Any, grid: Size, block: Size, shared_bytes: int, arguments: bytes) -> None:
        """Run a kernel to its end. arguments: packed, addresses of this process among them."""


@dataclass(frozen=True)
class Report:
    """See standin_report in standin.h."""

    alive: dict[str, int]
    used: list[int]
    misuse: list[str]
    calls: dict[str, int]
    launches: dict[str, int]
    trace: list[str]


class Runtime:
    """What tests tell the stand-in in this process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._kept: Any = None
        library.standin_report.restype = c_char_p
        library.standin_deliver.argtypes = (c_void_p, c_char_p, c_size_t, c_char_p)

    def reset(self, devices: str = "gfx1100", *, order: str = "lazy", version: int = 71500000) -> None:
        """Forget everything and be a machine with these devices, as standin.h writes them."""
        if self._library.standin_reset(devices.encode()):
            raise ValueError(f"not a list of devices: {devices!r}")
        self._library.standin_set_order(order.encode())
        self._library.standin_set_version(version)
        self.set_strategy(None)

    def set_order(self, order: str) -> None:
        """ "lazy", "eager" or the seed of a random order."""
        self._library.standin_set_order(order.encode())

    def fail(self, function: str, error: int, *, nth: int = 1, times: int = 1) -> None:
        """Let calls fail: the nth from now on, and times - 1 after it."""
        self._library.standin_fail(function.encode(), nth, times, error)

    def hold(self, held: bool) -> None:
        """While held, nothing runs and whoever waits goes on waiting."""
        self._library.standin_hold(int(held))

    def await_waiting(self, threads: int, timeout_s: float = 20.0) -> bool:
        """Until so many threads wait for the device; False if that takes longer."""
        return bool(self._library.standin_await_waiting(threads, int(1000 * timeout_s)))

    def report(self) -> Report:
        """What the runtime has counted and found."""
        return Report(**json.loads(self._library.standin_report()))

    def set_strategy(self, strategy: Strategy | None) -> None:
        """How kernels are compiled and run from now on; None for CPU fibers."""
        self._kept = None if strategy is None else self._wrapped(strategy)
        self._library.standin_set_strategy(None if self._kept is None else ctypes.byref(self._kept[0]))

    def _wrapped(self, strategy: Strategy) -> tuple[_CStrategy, list[Any]]:
        objects: list[Any] = [None]  # handles are indices, never 0

        def answering(error: int, out: Any, make: Callable[[], Any]) -> int:
            try:
                objects.append(make())
            except Exception as problem:
                print(f"{type(strategy).__name__}: {problem!r}")
                return error
            out[0] = len(objects) - 1
            return 0

        def compile(source: bytes, name: bytes, options: Any, count: int, result: int) -> int:
            try:
                words = [options[index].decode() for index in range(count)]
                code, log = strategy.compile(source.decode(), name.decode(), words)
            except Exception as problem:
                self._library.standin_deliver(result, b"", 0, str(problem).encode())
                return COMPILATION_FAILED
            self._library.standin_deliver(result, code, len(code), log.encode())
            return 0

        def load(code: int, size: int, target: bytes, out: Any) -> int:
            image = ctypes.string_at(code, size)
            return answering(NO_BINARY_FOR_GPU, out, lambda: strategy.load(image, target.decode()))

        def function(module: int, name: bytes, out: Any) -> int:
            return answering(NOT_FOUND, out, lambda: strategy.function(objects[module], name.decode()))

        def launch(kernel: int, grid: Any, block: Any, shared_bytes: int, packed: int, size: int) -> int:
            try:
                strategy.launch(
                    objects[kernel],
                    (grid[0], grid[1], grid[2]),
                    (block[0], block[1], block[2]),
                    shared_bytes,
                    ctypes.string_at(packed, size),
                )
            except Exception as problem:
                print(f"{type(strategy).__name__}: {problem!r}")
                return LAUNCH_FAILURE
            return 0

        def unload(module: int) -> None:
            objects[module] = None

        made = _CStrategy(
            _COMPILE(compile), _LOAD(load), _FUNCTION(function), _LAUNCH(launch), _UNLOAD(unload)
        )
        return made, objects


def unavailable() -> str | None:
    """Why there can be no stand-in here; None if there can."""
    if platform.machine().lower() not in ("x86_64", "amd64") or platform.system() != "Linux":
        return "fibers.h switches stacks as System V x86-64 does, and hip-python is for Linux"
    if shutil.which("c++") is None:
        return "needs a C++ compiler (c++)"
    try:
        import hip  # noqa: F401
    except ImportError as error:
        return f"needs hip-python ({error})"
    return None


def build(folder: Path) -> Path:
    """The folder with lib/libamdhip64.so and lib/libhiprtc.so, a ROCM_PATH. Built unless it is there: several
    processes may ask for the same one."""
    import fcntl  # only where the stand-in can run

    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until closed
        if not (folder / "lib").exists():
            _build(folder)
    return folder


def kept(folder: Path) -> Path:
    """The folder of a build, or one in WAVEFRONT_TEST_CACHE named for the sources and their compiler."""
    cache = os.environ.get("WAVEFRONT_TEST_CACHE")
    if cache is None:
        return folder
    compiler = subprocess.run(["c++", "--version"], capture_output=True, check=True).stdout
    sources = [path.read_bytes() for path in sorted(FOLDER.iterdir()) if path.is_file()]
    return Path(cache, sha256(b"".join([compiler, *sources])).hexdigest()[:32], folder.name)


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        library = Path(temporary) / "rocm" / "lib"
        library.mkdir(parents=True)
        flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
        flags += ["-fvisibility=hidden"]
        for name, sources, more in (
            ("libamdhip64.so", RUNTIME_SOURCES, ["-ldl"]),
            ("libhiprtc.so", ("hiprtc.cc",), [f"-L{library}", "-lamdhip64", "-Wl,-rpath,$ORIGIN"]),
        ):
            # In one piece: most of the time goes into the standard library's headers.
            whole = Path(temporary) / f"{name}.cc"
            whole.write_text("".join(f'#include "{FOLDER / source}"\n' for source in sources), "utf-8")
            _run(["c++", *flags, str(whole), "-o", str(library / name), f"-Wl,-soname,{name}", *more])
        for wave in (32, 64):
            header = library / f"wave{wave}" / "fibers.h"
            header.parent.mkdir()
            shutil.copy(FOLDER / "fibers.h", header)
            # As fiber_strategy.cc compiles kernels.
            flags = ["-O1", "-w", "-fno-strict-aliasing", "-fPIC", "-std=c++17"]
            flags += ["-DWAVEFRONT_CPU", f"-DWAVEFRONT_CPU_WAVE={wave}"]
            _run(["c++", *flags, "-x", "c++-header", str(header), "-o", f"{header}.gch"])
        library.parent.rename(folder)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the stand-in runtime does not compile:\n{done.stderr}")


@cache
def load(folder: Path) -> Runtime:
    """Build the stand-in if need be and load it. hip-python then finds it: by ROCM_PATH (10.x), or as a
    library of that name that is loaded already (7.x)."""
    build(folder)
    os.environ["ROCM_PATH"] = str(folder)
    runtime = ctypes.CDLL(str(folder / "lib" / "libamdhip64.so"), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(folder / "lib" / "libhiprtc.so"), mode=ctypes.RTLD_GLOBAL)
    return Runtime(runtime)

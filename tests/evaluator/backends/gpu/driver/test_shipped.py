# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD kernels that are shipped compiled: which there are, how they are found, and what replaces them."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pytest

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver import shipped
from evaluator.backends.gpu.driver.compiler import Compiler, KernelKey, source
from evaluator.backends.gpu.driver.device import CompilationError, OutOfDeviceMemory
from evaluator.backends.gpu.driver.discovery import discover
from evaluator.backends.gpu.driver.shipped import MACHINES, digest, family, renamed
from evaluator.backends.gpu.driver.target import Precision, amd_target
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.tiles import Choice, Measured, candidates
from evaluator.network.random_network import random_network
from scripts import amd_compilers, code_objects
from tests.evaluator.backends.gpu.fibers import SHAPE, evaluates, open_again, open_amd
from tests.hip_runtime.standin import Runtime

OUT_OF_MEMORY = 2
KEY = KernelKey("policy", Precision.FP16, (("ATTENTION_POLICY", 0), ("ENTRIES", 8)))


_Known: TypeAlias = dict[Product, list[Measured]]


class Recording(Compiler):
    """Keeps what is compiled, by its name in an archive."""

    objects: ClassVar[dict[bytes, bytes]] = {}

    def _code(self, key: KernelKey) -> bytes:
        code = super()._code(key)
        target = self._device.info.target
        self.objects[digest(source(key.file), (*key.options, *target.options), family(target.name))] = code
        return code


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / shipped.ARCHIVE
    monkeypatch.setattr(shipped, "archive_path", lambda: path if path.exists() else None)
    return path


def ship(path: Path, objects: dict[bytes, bytes], name: str = "gfx1100") -> None:
    code_objects.write(path, [(name, code_objects.packed(objects))])


@pytest.mark.parametrize("name", ["10x128", "wavefront-cpu.pb.gz"])
@pytest.mark.parametrize("target", ["gfx1030", "gfx1201", "gfx942"])
def test_any_measurements_need_only_shipped_kernels(name: str, target: str) -> None:
    of, network = amd_target(target), code_objects.networks()[name]
    listed = code_objects.kernels(network, of)
    for seed, positions in enumerate((1, 3, 11, 40, 100, 300, 700)):
        measured: _Known = {}

        def measurements(product: Product, seed: int = seed, to: _Known = measured) -> Sequence[Measured]:
            if product not in to:
                order = random.Random(f"{seed}{product}")
                found = [Measured(each, order.random()) for each in candidates(product, of, Precision.FP16)]
                to[product] = sorted(found, key=lambda each: each.microseconds)
            return to[product]

        def choose(product: Product, measurements: Any = measurements) -> Choice:
            return measurements(product)[0].choice  # type: ignore[no-any-return]

        plan = Plan(network, of, Precision.FP16, choose, measurements=measurements)
        for fused in (True, False):
            program = replace(plan, fused=fused).program(positions)
            assert {key for key, _ in program.kernels()} <= listed


def test_an_archive_has_the_same_bytes_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ship(tmp_path / name, {b"1": b"code"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.kernels
@pytest.mark.parametrize("member", [each for members in MACHINES.values() for each in members])
def test_a_renamed_kernel_has_the_machine_of_its_target(member: str, tmp_path: Path) -> None:
    if reason := amd_compilers.unavailable(member):
        pytest.skip(reason)
    (tmp_path / "a.hip").write_text('extern "C" __attribute__((global)) void a() {}')
    made = {}
    for name in (member, family(member)):
        amd_compilers.compile_file(tmp_path / "a.hip", name, ["-fuse-cuid=none"], tmp_path / f"{name}.co")
        made[name] = (tmp_path / f"{name}.co").read_bytes()
    taken = renamed(made[family(member)], member)
    if family(member) in ("gfx1030", "gfx1200"):
        assert taken == made[member]
    assert taken[16:20] + taken[48:52] == made[member][16:20] + made[member][48:52]  # kind and flags
    assert f"amdgcn-amd-amdhsa--{member}".encode() in taken


@pytest.mark.parametrize("binding", ["hip-python", "ctypes"])
def test_a_network_runs_by_shipped_kernels_without_a_compiler(
    runtime: Runtime,
    rocm: Path,
    archive: Path,
    kernel_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    binding: str,
) -> None:
    network = random_network(SHAPE, seed=3)
    monkeypatch.setattr("tests.evaluator.backends.gpu.fibers.Compiler", Recording)
    open_again(network, kernel_cache).close()
    ship(archive, Recording.objects)
    monkeypatch.undo()
    monkeypatch.setattr(shipped, "archive_path", lambda: archive)
    runtime.reset()
    if binding == "ctypes":  # that of Windows, on the runtime for Linux
        from evaluator.backends.gpu.driver import hip_windows

        monkeypatch.setattr(hip_windows, "LIBRARIES", {str(rocm / "lib" / "libamdhip64.so"): 7})
        hip_windows.library.cache_clear()
        monkeypatch.setattr("evaluator.backends.gpu.driver.amd.hip", hip_windows)
        monkeypatch.setattr("evaluator.backends.gpu.driver.amd.hiprtc", hip_windows)
    backend = open_again(network, archive.parent / "empty")
    assert evaluates(backend, 3, seed=5)
    backend.close()
    report = runtime.report()
    assert not [name for name in report.calls if name.startswith("hiprtc")]
    assert report.alive == {}
    assert not (archive.parent / "empty").exists()
    runtime.fail("hipMalloc", OUT_OF_MEMORY)
    with pytest.raises(OutOfDeviceMemory, match="hipMalloc"):
        open_amd().allocate(100)


def test_other_kernels_are_compiled(
    runtime: Runtime, archive: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ship(archive, {b"other": b"code"})
    for index, damage in enumerate(("", f"{archive} has no kernels for gfx1100")):
        compiler = Compiler(open_amd(), cache_folder=tmp_path / str(index))
        compiler.load([(KEY, 0)])
        assert compiler.compiled == 1
        assert damage in caplog.text
        archive.write_bytes(b"PK")
        shipped._objects.cache_clear()
    runtime.fail("hiprtcVersion", 1)
    with pytest.raises(CompilationError, match="not shipped for gfx1100, and there is no compiler"):
        Compiler(open_amd(), cache_folder=tmp_path / "cache").load([(KEY, 0)])


def test_devices_need_an_archive_or_a_compiler(machine: Runtime, archive: Path) -> None:
    machine.fail("hiprtcVersion", 1, times=1000)
    assert "hiprtcVersion" in discover().problems["amd"]
    archive.touch()
    assert len(discover().devices) == 1

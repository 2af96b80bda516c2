# SPDX-License-Identifier: GPL-3.0-or-later
"""Which compilers compile for a target."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.backends.gpu.driver.compiler import scratch_bytes
from evaluator.backends.gpu.driver.device import CompilationError
from scripts import amd_compilers


@pytest.fixture(params=amd_compilers.COMPILERS)
def compiler(request: pytest.FixtureRequest) -> str:
    if reason := amd_compilers.unavailable("gfx1100", request.param):
        pytest.skip(reason)
    return str(request.param)


def test_a_target_that_no_clang_knows_needs_a_newer_one() -> None:
    if reason := amd_compilers.unavailable("gfx1100"):
        pytest.skip(reason)
    assert "gfx1399 (pip install ziglang)" in (amd_compilers.unavailable("gfx1399"))


def test_every_compiler_makes_a_code_object(compiler: str, tmp_path: Path) -> None:
    path = tmp_path / "fill.hip"
    path.write_text('extern "C" __attribute__((global)) void fill(int* out) { *out = 7; }')
    report = amd_compilers.compile_file(path, "gfx1100", ["-O3"], tmp_path / "fill.co", compiler)
    assert "VGPRs Spill: 0" in report
    code = (tmp_path / "fill.co").read_bytes()
    assert code.startswith(b"\x7fELF")
    assert scratch_bytes(code) == 0
    amd_compilers.compile_file(path, "gfx1100", ["-O3"], tmp_path / "fill.s", compiler)
    assert "s_endpgm" in (tmp_path / "fill.s").read_text()


def test_spills_are_found_in_every_compilers_code(compiler: str, tmp_path: Path) -> None:
    (path := tmp_path / "array.hip").write_text("""
extern "C" __attribute__((global)) void array(int* out, int i) {
  volatile int all[300];
  all[i] = 7;
  *out = all[i / 2];
}
""")
    amd_compilers.compile_file(path, "gfx1100", ["-O3"], tmp_path / "array.co", compiler)
    assert 1200 <= scratch_bytes((tmp_path / "array.co").read_bytes()) < 1300


def test_every_compiler_reports_errors(compiler: str, tmp_path: Path) -> None:
    (path := tmp_path / "wrong.hip").write_text("int f( {")
    with pytest.raises(CompilationError, match="expected"):
        amd_compilers.compile_file(path, "gfx1100", [], tmp_path / "wrong.co", compiler)


def test_every_compiler_rejects_calls_of_undefined_functions(compiler: str, tmp_path: Path) -> None:
    source = """extern "C" __attribute__((device)) void absent(int*);
extern "C" __attribute__((global)) void call(int* out) { absent(out); }
"""
    (path := tmp_path / "call.hip").write_text(source)
    with pytest.raises(CompilationError, match="undefined"):
        amd_compilers.compile_file(path, "gfx1100", ["-O3"], tmp_path / "call.co", compiler)

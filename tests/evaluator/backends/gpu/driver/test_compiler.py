# SPDX-License-Identifier: GPL-3.0-or-later
"""The cache of compiled kernels, and what a compiler's error looks like."""

from pathlib import Path

import pytest

from evaluator.backends.gpu.driver.compiler import Compiler, KernelKey, source
from evaluator.backends.gpu.driver.device import CompilationError, Gpu
from evaluator.backends.gpu.driver.target import Precision

KEY = KernelKey("policy", Precision.FP32, (("ATTENTION_POLICY", 0), ("ENTRIES", 8)))

OTHER = KernelKey("policy", Precision.FP32, (("ATTENTION_POLICY", 0), ("ENTRIES", 16)))


def test_includes_are_pasted_in_once() -> None:
    text = source("gemm")
    assert "#include" not in text
    assert text.count("DEVICE int lane_index(") == 1  # Of matrix.h, which two files include.


def test_a_kernel_is_compiled_once_and_then_read(device: Gpu, tmp_path: Path) -> None:
    first = Compiler(device, cache_folder=tmp_path)
    first.load([(KEY, 0)])
    first.load([(KEY, 0)])
    assert first.compiled == 1
    again = Compiler(device, cache_folder=tmp_path)
    again.load([(KEY, 0)])
    assert again.compiled == 0


@pytest.mark.integration
@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 5000])
def test_a_damaged_entry_is_compiled_again(device: Gpu, tmp_path: Path, damage: bytes) -> None:
    Compiler(device, cache_folder=tmp_path).load([(KEY, 0)])
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(damage)
    again = Compiler(device, cache_folder=tmp_path)
    again.load([(KEY, 0)])
    assert again.compiled == 1


@pytest.mark.integration
def test_a_cache_that_cannot_be_written_is_reported_once(
    device: Gpu, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kernels"
    folder.write_text("no folder")
    compiler = Compiler(device, cache_folder=folder)
    compiler.load([(KEY, 0)])
    compiler.finish()
    compiler.load([(OTHER, 0)])
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert str(folder) in record.getMessage()


@pytest.mark.integration
def test_other_constants_are_another_kernel(device: Gpu, tmp_path: Path) -> None:
    compiler = Compiler(device, cache_folder=tmp_path)
    assert len(compiler.load([(KEY, 0), (OTHER, 0)])) == 2
    assert compiler.compiled == 2


def test_an_error_names_what_the_compiler_said(device: Gpu, tmp_path: Path) -> None:
    wrong = KernelKey("policy", Precision.FP32, (("ATTENTION_POLICY", 0),))
    with pytest.raises(CompilationError, match="ENTRIES"):
        Compiler(device, cache_folder=tmp_path).load([(wrong, 0)])

# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of architectures."""

import pytest

from evaluator.backends.gpu.driver.target import MatrixUnit, Precision, Target, amd_target, nvidia_target


@pytest.mark.parametrize(
    ("name", "wave", "unit"),
    [
        ("gfx906:sramecc+:xnack-", 64, MatrixUnit.FMA),
        ("gfx908:sramecc+:xnack-", 64, MatrixUnit.MFMA),
        ("gfx90a:sramecc+:xnack-", 64, MatrixUnit.MFMA),
        ("gfx942", 64, MatrixUnit.MFMA),
        ("gfx950:sramecc+:xnack-", 64, MatrixUnit.MFMA),
        ("gfx1030", 32, MatrixUnit.FMA),
        ("gfx1100", 32, MatrixUnit.WMMA_GFX11),
        ("gfx1151", 32, MatrixUnit.WMMA_GFX11),
        ("gfx1201", 32, MatrixUnit.WMMA_GFX12),
    ],
)
def test_known_amd_targets(name: str, wave: int, unit: MatrixUnit) -> None:
    target = amd_target(name)
    assert (target.wave, target.unit, target.is_listed) == (wave, unit, True)
    assert ":" not in target.name
    assert target.matrix_unit(Precision.FP32) is MatrixUnit.FMA


@pytest.mark.parametrize(
    ("names", "member"),
    [
        (("gfx940", "gfx951"), "gfx942"),
        (("gfx1104", "gfx1154"), "gfx1100"),
        (("gfx1202", "gfx120a"), "gfx1200"),
    ],
)
def test_unlisted_target_gets_its_familys_kernels(names: tuple[str, ...], member: str) -> None:
    for name in names:
        target, listed = amd_target(name), amd_target(member)
        assert (target.unit, target.wave) == (listed.unit, listed.wave)
        assert member in target.note
        assert "-DMATRIX_GENERIC=1" not in target.options
        assert target.no_e4m3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gfx90c", "not tried yet"),
        ("gfx1170", "its matrix unit has not been tried"),
        ("gfx1171", "its matrix unit has not been tried"),
        ("gfx1250", "its matrix unit differs from that of gfx1200"),
        ("gfx1310", "unknown"),
        ("gfx1399", "unknown"),
    ],
)
def test_target_of_no_family_gets_generic_kernels(name: str, reason: str) -> None:
    target = amd_target(name)
    assert target.unit is MatrixUnit.FMA
    assert not target.is_listed
    assert target.note == f"{reason}: generic kernels, without a matrix unit"
    assert target.options == ("-DMATRIX_GENERIC=1",)


@pytest.mark.parametrize(
    ("name", "wave", "member"),
    [
        ("gfx9-generic", 64, ""),
        ("gfx9-4-generic", 64, "gfx942"),
        ("gfx10-1-generic", 32, ""),
        ("gfx10-3-generic", 32, ""),
        ("gfx11-generic", 32, "gfx1100"),
        ("gfx12-generic", 32, "gfx1200"),
    ],
)
def test_family_name_gets_what_its_members_share(name: str, wave: int, member: str) -> None:
    target = amd_target(name)
    assert (target.wave, target.problem) == (wave, "")
    assert target.unit is (amd_target(member).unit if member else MatrixUnit.FMA)
    assert target.note.startswith("a family, for compiling only: ")
    assert (member or "generic kernels") in target.note
    assert target.no_e4m3


def test_gfx950_has_the_common_e4m3_and_a_larger_lds() -> None:
    older, newer = amd_target("gfx942"), amd_target("gfx950")
    assert (older.e4m3, newer.e4m3) == (0.5, 1.0)
    assert not newer.no_e4m3
    assert (older.lds_bytes, newer.lds_bytes) == (64 << 10, 160 << 10)
    assert newer.shared_bytes == older.shared_bytes == 64 << 10


def test_gfx908_has_a_matrix_unit_for_fp16_alone() -> None:
    target = amd_target("gfx908")
    units = [target.matrix_unit(precision) for precision in Precision]
    assert units == [MatrixUnit.MFMA, MatrixUnit.FMA, MatrixUnit.FMA]
    assert target.no_e4m3 == "its matrix unit has no e4m3"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (amd_target("gfx803"), "gfx803 is not supported: AMD GPUs from gfx900"),
        (nvidia_target(6, 1), "compute capability 6.1 is not supported"),
    ],
)
def test_target_has_a_problem_when_too_old(target: Target, message: str) -> None:
    assert target.problem.startswith(message)


def test_everything_newer_is_tried() -> None:
    units = [nvidia_target(7, 5).unit, nvidia_target(9, 0).unit]
    assert units == [MatrixUnit.FMA, MatrixUnit.MMA_SYNC]
    names = ("gfx900", "gfx90a", "gfx950", "gfx1010", "gfx1250", "gfx1399")
    assert [amd_target(name).problem for name in names] == [""] * len(names)
    assert nvidia_target(7, 5).problem == nvidia_target(12, 0).problem == ""

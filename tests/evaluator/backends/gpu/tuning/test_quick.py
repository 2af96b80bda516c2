# SPDX-License-Identifier: GPL-3.0-or-later
"""Choices for a start that does not wait for measurements."""

from collections import Counter
from dataclasses import replace

import pytest

from evaluator.backends.gpu.blas.library import Library, LibraryProduct, Operands
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.backends.gpu.driver.target import Precision, Target, amd_target, nvidia_target
from evaluator.backends.gpu.plan.plan import Plan
from evaluator.backends.gpu.plan.tiles import Choice, Measured, model_chooser
from evaluator.backends.gpu.tuning.quick import QuickChooser
from evaluator.network.random_network import SHAPES, random_network
from evaluator.network.spec import Activation

HOPPER = nvidia_target(9, 0)
PLAIN = Product(512, 256, 128, Activation.NONE)
MANY = Product(64 * 256, 1024, 1024, Activation.NONE, residual=True, followed=True, normalised=True)


class GuessingLibrary(Library):
    """Offers two algorithms for everything; or fails."""

    version, workspace = "1", 0

    def __init__(self, name: str = "cuBLASLt", *, fails: bool = False) -> None:
        self.name, self.fails = name, fails

    def algorithms(self, product: LibraryProduct) -> list[bytes]:
        if self.fails:
            raise DeviceError("it is broken")
        return [b"first", b"second"]

    def multiply(
        self, product: LibraryProduct, algorithm: bytes, operands: Operands, *, workspace: int, stream: int
    ) -> None:
        raise AssertionError("nothing is run")


def quick(
    *libraries: Library, target: Target = HOPPER, known: dict[Product, list[Measured]] | None = None
) -> QuickChooser:
    info = DeviceInfo("nvidia", 0, "a GPU", target, 1 << 37, 132, "driver", integrated=False)
    return QuickChooser(info, Precision.FP16, libraries, known or {})


def test_measured_choice_replaces_a_guess() -> None:
    best = Choice(None, 1, b"measured", "cuBLASLt")
    chooser = quick(GuessingLibrary(), known={PLAIN: [Measured(best, 3.0)]})
    assert chooser.choose(PLAIN) == best
    assert chooser.guessed == {}


def test_a_trusted_library_is_asked_for_its_first_guess() -> None:
    chooser = quick(GuessingLibrary())
    assert chooser.choose(PLAIN).algorithm == b"first"
    assert list(chooser.guessed) == [PLAIN]


def test_others_and_those_that_fail_are_not() -> None:
    own = model_chooser(HOPPER, Precision.FP16, 132)(PLAIN)
    for libraries in ((), (GuessingLibrary("hipBLASLt"),), (GuessingLibrary(fails=True),)):
        assert quick(*libraries).choose(PLAIN) == own
    amd = quick(target=amd_target("gfx1100")).choose(PLAIN)
    assert amd == model_chooser(amd_target("gfx1100"), Precision.FP16, 132)(PLAIN)


def test_many_rows_with_a_norm_go_to_the_kernel_that_saves_the_pass() -> None:
    chooser = quick(GuessingLibrary())
    tile = chooser.choose(MANY).hopper
    assert tile is not None
    assert tile.normalise
    few = replace(MANY, m=64 * 16)  # 64 tiles for 132 processors
    assert chooser.choose(few).library == "cuBLASLt"
    no_pass = replace(MANY, followed=False, normalised=False)
    assert chooser.choose(no_pass).library == "cuBLASLt"


@pytest.mark.integration
def test_few_kernels_are_compiled_for_a_large_network() -> None:
    chooser = quick(GuessingLibrary())
    network = random_network(replace(SHAPES["bt4"], layers=2))  # the others have the same
    plan = Plan(network, HOPPER, Precision.FP16, chooser.choose)
    sizes = (1, 8, 64, 264, 1056)
    kernels = {key for size in sizes for key, _ in plan.program(size).kernels()}
    files = Counter(key.file for key in kernels)
    assert files["gemm_hopper"] + files["attention_hopper"] <= 10  # those take a second and more
    assert len(kernels) <= 40

# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the fastest correct way to compute each matrix product on a device, and caches it.

Candidates are our own kernel with the likeliest tiles, and the vendor's libraries. Each is compared with the
host and timed (bench.py). Libraries are not trusted: a wrong, failing or hanging one is skipped and logged,
and a persistently bad one is given up. Once one product is unknown, all products of the plan are measured.
Kernels compile concurrently while the first are measured, and products share their operands. The results at
some batch sizes decide what to try at those between them (shortlist.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.common.progress import announce
from evaluator.backends.gpu.blas.library import EPILOGUES, Library, LibraryGivenUp, library_product
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import Compiler, KernelKey
from evaluator.backends.gpu.driver.device import DeviceError, Gpu
from evaluator.backends.gpu.driver.target import Precision
from evaluator.backends.gpu.plan import hopper
from evaluator.backends.gpu.plan.needs import Needs
from evaluator.backends.gpu.plan.quantised import Packed, WeightFormat
from evaluator.backends.gpu.plan.tiles import Choice, Measured, candidates, estimate
from evaluator.backends.gpu.tuning import cache
from evaluator.backends.gpu.tuning.bench import Bench, TooSlow, trial
from evaluator.backends.gpu.tuning.samples import Samples
from evaluator.backends.gpu.tuning.shortlist import in_full, neighbours, shortlist

log = logging.getLogger(__name__)

OWN_CANDIDATES, OWN_CANDIDATES_OF_FEW = 4, 16
"""Number of forms of our kernel that are measured, the best by the model's estimate; more if m is small,
because the model is inaccurate there."""

_FEW_ROWS = 512

CANDIDATE_S = 5.0
"""Time limit of a library's first answer. Some compile for minutes for each shape; libraries that load code
from disk need a fraction of a second."""

_POWER_US, _CLOSE = 40.0, 1.06
"""Products slower than the first value may reach the chip's power limit. Candidates within the second factor
of the best are then measured again in alternation."""

_FAR_BEHIND, _HOPEFUL = 1.25, 8
"""Candidates slower than the best by the first factor in a first look are not measured again, and at most the
second number is. A first look includes the constant cost of a graph, so its relative errors are smaller."""

_PATIENCE = 3
"""Consecutive products that a library gets completely wrong before it is given up."""

_SAVE_S = 5.0
"""Interval of writing the cache during long measurements."""


class NotMeasured(Exception):  # noqa: N818 - named for what is missing
    """A choice needs measuring, which this Tuner is not allowed to do."""


class Tuner:
    """Choices for one device and precision. `choose` is a Chooser that measures unknown products."""

    def __init__(
        self,
        device: Gpu,
        compiler: Compiler,
        precision: Precision,
        libraries: Sequence[Library],
        *,
        use_cache: bool = True,
        progress: Callable[[str], None] = log.debug,
        shortlists: bool = True,
        measures: bool = True,
        lease: DeviceLease = exclusive_lease,
        known: Mapping[Product, Sequence[Measured]] | None = None,
        given_up: Collection[str] = (),
        trying: Callable[[str], None] = lambda candidate: None,
        found: Callable[[Product, list[Measured]], None] = lambda product, measured: None,
    ) -> None:
        """use_cache: read and write the cache. progress: called with each product. shortlists: at most batch
        sizes measure only candidates that are fast at the neighbouring sizes. measures: False to raise
        NotMeasured for unknown products. lease: of the device, for timing. known: measurements in addition to
        the cache. given_up: keys of candidates to skip. trying: called with a candidate's key before its
        first run. found: called with each product's measurements; again if a library hangs later."""
        self._device = device
        self._compiler = compiler
        self._precision = precision
        self._libraries = libraries
        self._progress = progress
        self._path = cache.path_of(device.info, precision, libraries) if use_cache else None
        self.known: dict[Product, list[Measured]] = {}
        self.read_cache()
        self.known |= {product: [*measured] for product, measured in (known or {}).items()}
        self._not_tried = {*given_up}
        self._on_trying, self._on_found = trying, found
        self.measured = 0
        """Number of products that were not in the cache."""
        self._chosen: set[str] = set()
        self._failures: dict[str, int] = {}
        self._given_up: set[str] = set()
        self._shortlists = shortlists
        self.measures = measures
        self._lease = lease
        self._needs: Callable[[], Needs] = lambda: Needs(())

    def expect(self, needs: Callable[[], Needs]) -> None:
        """Announce the coming calls of `choose`. needs: called if any of them must be measured."""
        self._needs = needs

    def choose(self, product: Product) -> Choice:
        """Return the fastest correct choice, measuring it if unknown. Raises DeviceError if there is none,
        and LibraryGivenUp once if earlier answers no longer hold. Raises NotMeasured if it must not
        measure."""
        choice = self.measurements(product)[0].choice
        self._chosen.add(choice.library)
        return choice

    def measurements(self, product: Product) -> list[Measured]:
        """Return every correct choice, fastest first, measuring if unknown. Raises as `choose` does."""
        if product not in self.known and not self.measures:
            raise NotMeasured(str(product))
        if product not in self.known:
            needs = self._needs()
            self.measure_all(Needs({product: None, **dict.fromkeys(needs.products)}, needs.kernels))
        return self.known[product]

    def read_cache(self) -> None:
        """Add the measurements in the cache that are unknown so far."""
        if self._path is not None:
            self.known = cache.read(self._path) | self.known

    def save(self) -> None:
        """Write the measurements to the cache, merged with those of other processes."""
        if self._path is not None and self.measured:
            cache.write(self._path, cache.read(self._path) | self.known)

    def measured_products(self, needs: Needs, *, rebuild: bool) -> list[tuple[Product, list[Measured]]]:
        """Return the measurements of products, after measuring and caching the unknown ones. rebuild: measure
        all. Raises as `choose` does."""
        if rebuild:
            for product in needs.products:
                self.known.pop(product, None)
        self.measure_all(needs)
        self.save()
        return [(product, self.known[product]) for product in needs.products]

    def measure_all(self, needs: Needs) -> None:
        """Measure the unknown products. Raises as `choose` does."""
        full = in_full(needs.products) if self._shortlists else set(needs.products)
        unknown = sorted(
            (product for product in needs.products if product not in self.known),
            # Group by shape, because samples cache the weights of one shape.
            key=lambda each: (
                each.n,
                each.k,
                each.weight_bits,
                each.e4m3,
                each not in full,
                each.m,
            ),
        )
        announce(f"compiling kernels for {self._device.info.name}; they are kept for the next start")
        self._start_compiling([product for product in unknown if product in full], needs.kernels)
        samples = Samples(self._device, self._precision)
        save_at = time.perf_counter() + _SAVE_S
        try:
            for done, product in enumerate(unknown):
                if time.perf_counter() > save_at:  # keep the results if the program ends now
                    self.save()
                    save_at = time.perf_counter() + _SAVE_S
                announce(
                    f"measuring matrix products on {self._device.info.name}, {done} of {len(unknown)} done; "
                    "the next start needs none of it"
                )
                beside = None if product in full else neighbours(product, self.known)
                self.known[product] = self.measure(product, samples, beside)
                self._on_found(product, self.known[product])
                self.measured += 1
                if samples.abandoned:
                    samples = Samples(self._device, self._precision)
        except BaseException:
            self._compiler.finish()
            raise
        finally:
            samples.close()
        self._forget_given_up()

    def _start_compiling(
        self, products: Sequence[Product], others: Collection[tuple[KernelKey, int]]
    ) -> None:
        """Start compiling all kernels on all cores, in the order of use. Kernels that are not products, some
        of which take longest, come after those of the first product."""
        target, precision = self._device.info.target, self._precision
        keys: dict[KernelKey, None] = {}
        for index, product in enumerate(products):
            form = next((each for each in WeightFormat if each.bits == product.weight_bits), None)
            packed = None if form is None else Packed(form, np.zeros(0, np.uint8), np.zeros(0))
            libraries = [
                Choice(None, library=library.name, fused=fused)
                for library in self._libraries
                for fused in (True, False)
            ]
            for choice in (*self._own(product), *libraries):
                keys |= {key: None for key, _ in trial(product, choice, target, precision, packed).kernels()}
            if index == 0:
                keys |= {key: None for key, _ in others}
        self._compiler.start(keys)

    def _own(self, product: Product) -> list[Choice]:
        """Return our own kernels for a product with the likeliest tiles."""
        info = self._device.info
        count = OWN_CANDIDATES_OF_FEW if product.m <= _FEW_ROWS else OWN_CANDIDATES
        own: list[Choice] = []
        for packed in (False, True) if product.weight_bits else (False,):
            ranked = candidates(product, info.target, self._precision, packed=packed)
            ranked.sort(key=lambda choice: estimate(product, choice, info.multiprocessors))
            own += [next(choice for choice in ranked if choice.splits == 1), *ranked[:count]]
        return [*dict.fromkeys(own), *self._hopper(product)]

    def _all_own(self, product: Product) -> list[Choice]:
        """Return our own kernels for a product with all tiles."""
        own: list[Choice] = []
        for packed in (False, True) if product.weight_bits else (False,):
            own += candidates(product, self._device.info.target, self._precision, packed=packed)
        return [*own, *self._hopper(product)]

    def _hopper(self, product: Product) -> list[Choice]:
        tiles = hopper.candidates(product, self._device.info.target, self._precision)
        return [Choice(None, hopper=tile) for tile in tiles]

    def measure(
        self,
        product: Product,
        samples: Samples | None = None,
        beside: tuple[Product, Product] | None = None,
    ) -> list[Measured]:
        """Return every correct candidate, fastest first. beside: known products that restrict the candidates
        to likely ones. Raises DeviceError if there is none."""
        if samples is None:
            with Samples(self._device, self._precision) as samples:
                return self.measure(product, samples, beside)
        start = time.perf_counter()
        with Bench(self._device, self._compiler, self._libraries, product, samples, self._lease) as bench:
            measured: list[Measured] = []
            if beside is not None:
                likely = shortlist(self._all_own(product), [self.known[each] for each in beside])
                measured = self._first_looks(bench, product, likely.own, likely.libraries)
            if not measured:
                names = [library.name for library in self._libraries]
                measured = self._first_looks(bench, product, self._own(product), names)
            if not measured:
                raise DeviceError(f"nothing computes {product} correctly")
            if not samples.abandoned:
                measured = self._looked_at_again(bench, measured)
        best = ", ".join(f"{each.choice} {each.microseconds:.1f} us" for each in measured[:4])
        self._progress(
            f"{product.m} x {product.n} x {product.k}: {best} "
            f"({len(measured)} candidates in {time.perf_counter() - start:.2f} s)"
        )
        return measured

    def _first_looks(
        self, bench: Bench, product: Product, own: Sequence[Choice], libraries: Collection[str]
    ) -> list[Measured]:
        """Return the correct candidates of our own and of the libraries, fastest first."""
        measured: list[Measured] = []
        for choice in self._in_registers(bench, product, own):
            if not self._may_try(product, choice):
                continue
            try:
                errors = bench.errors(choice)
            except DeviceError as error:
                if choice.hopper is None:
                    raise
                log.info("%s: %s: %s", product, choice, error)  # e.g. clusters do not fit on a partial GPU
                continue
            if errors.within(self._precision):
                measured.append(Measured(choice, bench.first_look(choice)))
            else:
                log.warning("%s: %s is wrong by %.1g and is not used", product, choice, errors.largest)
        for library in self._libraries:
            if library.name in libraries and library.name not in self._given_up:
                measured += self._of_library(bench, library, product)
        return sorted(measured, key=_microseconds)

    def _in_registers(self, bench: Bench, product: Product, own: Sequence[Choice]) -> Sequence[Choice]:
        """Return the choices whose kernels do not spill with this machine's compiler; all if every one
        spills. No choice spills with the compilers of `kernels --compilers`."""
        if not self._device.info.target.name.startswith("gfx"):
            return own
        scratch = {choice: bench.scratch_bytes(choice) for choice in own}
        if not any(scratch.values()) or all(scratch.values()):
            return own
        for choice, size in scratch.items():
            if size:
                log.info("%s: %s spills %d bytes per thread and is not measured", product, choice, size)
        return [choice for choice in own if not scratch[choice]]

    def _may_try(self, product: Product, candidate: Choice | str) -> bool:
        """Announce a candidate (choice or library name). Returns False for one that crashed a process
        before."""
        key = candidate_key(product, candidate)
        self._on_trying(key)
        return key not in self._not_tried

    def _looked_at_again(self, bench: Bench, measured: list[Measured]) -> list[Measured]:
        """Return the same with better times for the fastest ones."""
        limit = _FAR_BEHIND * measured[0].microseconds
        hopeful = [each for each in measured[:_HOPEFUL] if each.microseconds <= limit]
        again = [Measured(each.choice, bench.second_look(each.choice, each.microseconds)) for each in hopeful]
        again.sort(key=_microseconds)
        best_us = again[0].microseconds
        close = [each.choice for each in again if each.microseconds < _CLOSE * best_us]
        if best_us > _POWER_US and len(close) > 1:
            in_turns = map(Measured, close, bench.in_turns(close, best_us))
            again = sorted(in_turns, key=_microseconds) + again[len(close) :]
        return again + measured[len(hopeful) :]

    def _of_library(self, bench: Bench, library: Library, product: Product) -> list[Measured]:
        """Return a library's correct algorithms, timed."""
        shape = f"{product.m} x {product.n} x {product.k}"
        measured: list[Measured] = []
        troubles: list[str] = []
        level = logging.INFO
        try:
            if not self._may_try(product, library.name):
                return []
            for choice in bench.within(CANDIDATE_S, lambda: offers(library, product)):
                if not self._may_try(product, choice):
                    continue
                try:
                    errors = bench.errors(choice, CANDIDATE_S)
                    if errors.within(self._precision):
                        measured.append(Measured(choice, bench.first_look(choice)))
                    else:
                        troubles.append(f"{choice} is wrong by {errors.largest:.2g}")
                        level = logging.WARNING
                except DeviceError as error:
                    troubles.append(f"{choice}: {error}")
        except TooSlow as error:
            log.warning("%s: %s for %s; %s is not used any more", library.name, error, shape, library.name)
            self._given_up.add(library.name)
            library.abandon()
            return []
        except DeviceError as error:
            troubles.append(str(error))
        if troubles:
            log.log(level, "%s for %s: not used: %s", library.name, shape, "; ".join(troubles))
        self._failures[library.name] = (
            self._failures.get(library.name, 0) + 1 if not measured and troubles else 0
        )
        if self._failures[library.name] == _PATIENCE:
            log.warning("%s computes nothing right here and is not tried any more", library.name)
            self._given_up.add(library.name)
        return measured

    def _forget_given_up(self) -> None:
        """Remove choices that would call a hanging library, and report what remains of those products."""
        lost = {library.name for library in self._libraries if library.abandoned}
        for product, measured in [*self.known.items()]:
            kept = [each for each in measured if each.choice.library not in lost]
            if not kept:
                del self.known[product]
            elif len(kept) < len(measured):
                self.known[product] = kept
                self._on_found(product, kept)
        if lost & self._chosen:
            self._chosen -= lost
            raise LibraryGivenUp(", ".join(sorted(lost)))


def candidate_key(product: Product, candidate: Choice | str) -> str:
    """Return a candidate's name in one line. candidate: a choice, or a library's name for its whole list."""
    library = candidate if isinstance(candidate, str) else candidate.library or "own"
    text = f"{library} for {product.m} x {product.n} x {product.k}: {product!r} {candidate!r}"
    return " ".join(text.split())


def library_of_key(key: str) -> str:
    """Return the library of a candidate's key; empty for our own kernels."""
    name = key.partition(" ")[0]
    return "" if name == "own" else name


def _microseconds(measured: Measured) -> float:
    return measured.microseconds


def offers(library: Library, product: Product) -> list[Choice]:
    """Return a library's possible choices for a product. Raises DeviceError."""
    if product.convolution or product.bias_by_square or product.segment or product.e4m3:
        return []
    # Its own activation may be slow or broken, so try it without, too.
    activations = (True, False) if product.activation in EPILOGUES[library.name].activations else (True,)
    choices: dict[Choice, None] = {}
    for fused in activations:
        shape = library_product(product, library.name, fused=fused, lda=product.k, ldo=product.n)
        choices |= {Choice(None, 1, each, library.name, fused): None for each in library.algorithms(shape)}
    return list(choices)

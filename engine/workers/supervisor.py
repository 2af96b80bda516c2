"""Workers in other processes as one place.

Each seat has one worker at a time. Games go to the worker with the most room. When a worker is lost another
one takes its seat, and the games that were under way there are played again, wherever there is room: only
what came back counts, so nothing is there twice.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Protocol

from engine.workers.executor import Game, Log, PlaceError
from engine.workers.worker import WorkerReport, first_line

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics

OPEN_SECONDS = 600.0
"""How long a worker may take to be ready; to start an evaluator with a large network takes minutes the first
time."""

MAX_FAILURES = 3
"""Workers of one seat that may be lost without having finished a game, before the seat stays empty."""

CLOSE_SECONDS = 10.0
"""How long workers may take to end their games."""


class WorkerLostError(Exception):
    """A worker is of no use any more: it is gone, or its games failed. The message says why."""


class Worker(Protocol):
    """A worker as those see it who send it games. Raises WorkerLostError wherever it is gone."""

    async def open(self) -> int:
        """Get ready; returns how many games at once are best there."""
        ...

    async def play(self, numbers: Sequence[int]) -> list[Any]:
        """The games of these numbers."""
        ...

    async def report(self) -> WorkerReport:
        """Statistics so far, and the messages since the last report."""
        ...

    async def close(self) -> WorkerReport:
        """End its games; returns the last report."""
        ...

    async def kill(self) -> None:
        """End it at once, whatever state it is in. Idempotent, raises nothing."""
        ...


@dataclass(eq=False, slots=True)
class Hand:
    """A worker at work. load: games under way there. heard: when its statistics came (monotonic seconds)."""

    seat: Seat
    worker: Worker
    capacity: int
    load: int = 0
    statistics: PoolStatistics | None = None
    heard: float = 0.0


@dataclass(eq=False, slots=True)
class Seat:
    """Where a worker is, or could be. failures: workers lost in a row. starting: one is on its way. reason:
    why the last one was lost."""

    name: str
    failures: int = 0
    starting: bool = False
    hand: Hand | None = None
    reason: str = ""

    @property
    def hopeless(self) -> bool:
        return self.failures >= MAX_FAILURES


class Crew(ABC, Generic[Game]):
    """A place whose games are played by workers. Subclasses say what seats there are and hire for them."""

    games_per_task = 1
    watch_seconds = 2.0
    """Time between two looks at the workers, for their messages and statistics."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.closing = False
        self._seats: list[Seat] = []
        self._all_hands: list[Hand] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what subclasses know ----------------------------------------------------------------------------

    @abstractmethod
    async def hire(self, seat: Seat) -> Worker:
        """Start a worker for a seat. Raises WorkerLostError."""

    async def look(self) -> None:
        """Look at what the workers need, every now and then."""

    @abstractmethod
    def nobody_left(self) -> str:
        """Why nobody can play."""

    # -- a place -----------------------------------------------------------------------------------------

    async def play(self, numbers: Sequence[int]) -> list[Game]:
        """Raises PlaceError when no seat is left."""
        while True:
            hand = await self._least_loaded()
            hand.load += len(numbers)
            try:
                games: list[Game] = await hand.worker.play(numbers)
                hand.seat.failures = 0
                await self._ask(hand)  # What is shown with a game has it in.
                return games
            except WorkerLostError as error:
                await self.lose(hand, str(error))
            finally:
                hand.load -= len(numbers)

    def statistics(self) -> PoolStatistics:
        """Of all workers, those lost included, as far as they have reported."""
        from engine.pool.pool import PoolStatistics

        heard = [(hand, hand.statistics) for hand in self._all_hands if hand.statistics is not None]
        began = min((hand.heard - s.seconds for hand, s in heard if s.seconds), default=0.0)
        latest = max((hand.heard for hand, s in heard if s.seconds), default=0.0)
        evaluations = sum(s.evaluations for _, s in heard)
        batches = sum(s.evaluations / s.mean_batch for _, s in heard if s.mean_batch)
        return PoolStatistics(
            searches=sum(s.searches for _, s in heard),
            evaluations=evaluations,
            seconds=latest - began,
            mean_batch=evaluations / batches if batches else 0.0,
            moves=sum(s.moves for _, s in heard),
        )

    async def close(self) -> None:
        self.closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        hands = self.hands()
        await asyncio.gather(*(self._dismiss(hand) for hand in hands))

    # -- seats and workers -------------------------------------------------------------------------------

    def hands(self) -> list[Hand]:
        """The workers that are ready."""
        return [seat.hand for seat in self._seats if seat.hand is not None]

    def reasons(self) -> str:
        """Why the seats lost their last workers."""
        return "; ".join(f"{seat.name}: {seat.reason}" for seat in self._seats if seat.reason)

    async def start(self, seats: Iterable[Seat]) -> None:
        """Take on the first workers, and wait until each is ready or has failed."""
        for seat in seats:
            self.fill(seat, attempts=1)
        async with self._changed:
            await self._changed.wait_for(lambda: not any(seat.starting for seat in self._seats))
        self.spawn(self._watch())

    def fill(self, seat: Seat, attempts: int = MAX_FAILURES) -> None:
        """Find a worker for a seat, unless it has one or is past hope."""
        if seat not in self._seats:
            self._seats.append(seat)
        if seat.hand is None and not seat.starting and not seat.hopeless and not self.closing:
            seat.starting = True
            self.spawn(self._fill(seat, attempts))

    async def lose(self, hand: Hand, reason: str) -> None:
        """A worker is of no use any more: another one is to take its seat."""
        seat = hand.seat
        if seat.hand is hand and not self.closing:
            seat.hand = None
            self._failed(seat, reason)
            self.fill(seat)
            await hand.worker.kill()
        await self._tell()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside, until it is done or the place is closed."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fill(self, seat: Seat, attempts: int) -> None:
        try:
            for _ in range(attempts):
                seat.hand = await self._hired(seat)
                if seat.hand is not None or seat.hopeless:
                    break
        finally:
            seat.starting = False
            await self._tell()

    async def _hired(self, seat: Seat) -> Hand | None:
        """A worker that is ready; None if it failed."""
        worker: Worker | None = None
        hand: Hand | None = None
        try:
            worker = await self.hire(seat)
            async with asyncio.timeout(OPEN_SECONDS):
                hand = Hand(seat, worker, await worker.open())
            self._all_hands.append(hand)
        except TimeoutError:
            self._failed(seat, f"no worker was ready after {OPEN_SECONDS:.0f} s: is the machine busy?")
        except Exception as error:  # Whatever goes wrong at one seat, the others play on.
            self._failed(seat, first_line(error))
        finally:
            if hand is None and worker is not None:
                await worker.kill()
        return hand

    def _failed(self, seat: Seat, reason: str) -> None:
        seat.failures += 1
        seat.reason = reason
        self.log(f"{seat.name} lost: {reason}")

    async def _least_loaded(self) -> Hand:
        """The worker with the most room, waiting for one if there is hope. Raises PlaceError."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self.hands() or not any(seat.starting for seat in self._seats)
            )
        hands = self.hands()
        if not hands:
            raise PlaceError(self.nobody_left())
        return min(hands, key=lambda hand: (hand.load + 1) / max(1, hand.capacity))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.watch_seconds)
            await self.look()
            await asyncio.gather(*(self._ask(hand) for hand in self.hands()))

    async def _ask(self, hand: Hand) -> None:
        """Take over a worker's messages and statistics. Whether it is lost shows in its games."""
        try:
            async with asyncio.timeout(self.watch_seconds):
                self._heard(hand, await hand.worker.report())
        except (WorkerLostError, TimeoutError):
            return

    async def _dismiss(self, hand: Hand) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                self._heard(hand, await hand.worker.close())
        except (WorkerLostError, TimeoutError) as error:
            self.log(f"{hand.seat.name} did not end by itself: {first_line(error)}")
        finally:
            await hand.worker.kill()

    def _heard(self, hand: Hand, report: WorkerReport) -> None:
        hand.statistics, notes = report
        hand.heard = monotonic()
        for note in notes:
            self.log(f"{hand.seat.name}: {note}")

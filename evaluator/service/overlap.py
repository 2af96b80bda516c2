"""Whether a client sends its next request while the last one is run, as searches with two batches do.

Then one more thread is worth being woken, which reads the next request meanwhile (io_loop.py).
"""

from __future__ import annotations

from protocol.host.processors import usable_processors

ENOUGH_PROCESSORS = 4
"""With fewer there is none for a second thread, beside the client's and the one that waits for the device."""

MOST_SIGNS = 8
"""So many of the last batches count."""

WAITED_S = 3e-5
"""A wait that was shorter did not wait: the message was there before."""


class Overlap:
    """Whether the next request usually comes while a batch is run: then another thread had better read it.

    received: messages so far. Belongs to the I/O thread, but for `seen`.
    """

    def __init__(self) -> None:
        self.received = 0
        self._possible = usable_processors() >= ENOUGH_PROCESSORS
        self._signs = 0
        self._back = False

    @property
    def likely(self) -> bool:
        """Whether most of the last batches saw another request come."""
        return self._possible and self._signs >= MOST_SIGNS // 2

    def seen(self, came: bool) -> None:
        """Note whether another request came while a batch was run."""
        self._signs = min(MOST_SIGNS, self._signs + 1) if came else max(0, self._signs - 1)

    def came_back(self) -> None:
        """The thread that ran a batch is back, with nobody in the loop meanwhile."""
        self._back = True

    def waited(self, seconds: float) -> None:
        """The loop has waited for a message: if it was there at once, it came while the batch was run."""
        if self._back:
            self._back = False
            self.seen(seconds < WAITED_S)

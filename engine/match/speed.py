"""How fast a match goes, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Speed:
    """Of this run of the match: what was resumed is not counted.

    concurrency: games at once. moves: played by all players, also in games that are not over. evaluations:
    positions that this engine's players asked their evaluator about; mean_batch: positions per batch as the
    device computed them.
    """

    seconds: float = 0.0
    concurrency: int = 0
    games: int = 0
    moves: int = 0
    evaluations: int = 0
    positions_per_second: float = 0.0
    mean_batch: float = 0.0

    @property
    def games_per_hour(self) -> float:
        return 3600 * self.games / self.seconds if self.seconds > 0 else 0.0

    @property
    def moves_per_second(self) -> float:
        return self.moves / self.seconds if self.seconds > 0 else 0.0

    def data(self) -> dict[str, Any]:
        """All of it as JSON data."""
        return asdict(self) | {
            "games_per_hour": self.games_per_hour,
            "moves_per_second": self.moves_per_second,
        }

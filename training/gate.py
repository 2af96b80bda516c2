# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate: a network replaces another only if a match's SPRT accepts it as stronger."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.search.player.network_constants import CONSTANTS
from evaluator.network import network_file
from protocol.common.files import write_atomically
from protocol.common.processes import INTERRUPTED
from training.data.annotations import prior_identity
from training.errors import TrainingError
from training.step import run_step

VERDICT = "gate.json"


@dataclass(frozen=True, slots=True)
class Promotion:
    """A match between two networks, each a file or the name of an included one.

    limit: flag and value of `wavefront match` that limit each move. sprt: as for its --sprt. folder: of the
    match, which the same gate resumes. constants_of: network whose search constants both have, since a new
    file has none of its own. match_arguments: further arguments.
    """

    network: Path
    against: str
    limit: tuple[str, str]
    games: int
    sprt: str
    folder: Path
    constants_of: str
    match_arguments: tuple[str, ...] = ()

    def play(self) -> dict[str, Any]:
        """Play or resume the match, write the verdict and return it.

        It has network, against, accepted, decision (H0, H1 or null), elo and the match's summary.
        Raises KeyboardInterrupt if the match was interrupted, and TrainingError if it failed.
        """
        for path in [network_file(each) for each in (self.network, self.against, self.constants_of)]:
            if not path.exists():
                raise TrainingError(f"{path}: no network there")
        self.folder.mkdir(parents=True, exist_ok=True)
        # Progress is printed to the inherited standard error.
        status, output = run_step("engine", self._arguments())
        if status in (INTERRUPTED, -signal.SIGTERM):
            raise KeyboardInterrupt
        if status:
            raise TrainingError(f"the match failed with exit status {status}")
        summary = json.loads(output)
        verdict = verdict_of(self.network, self.against, summary)
        write_atomically(self.folder / VERDICT, (json.dumps(verdict, indent=1) + "\n").encode(), durable=True)
        return verdict

    def _arguments(self) -> list[str]:
        known = CONSTANTS.get(prior_identity(self.constants_of), {})
        constants = "".join(f",{name}={json.dumps(value)}" for name, value in known.items())
        return [
            *("match", "--player", f"name=new,weights={network_file(self.network)}{constants}"),
            *("--player", f"name=against,weights={network_file(self.against)}{constants}"),
            *self.limit,
            *("--games", str(self.games), "--sprt", self.sprt),
            *("--output", str(self.folder / "match"), "--json"),
            *self.match_arguments,
        ]


def is_verdict(content: bytes) -> bool:
    """Return True for the content of a verdict's file."""
    return content.startswith(b'{\n "network": ') and b'"accepted"' in content


def verdict_of(network: Path, against: str, summary: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict of a match's summary about its first player."""
    decision = summary["sprt"]["decision"]
    return {
        "network": str(network),
        "against": against,
        "accepted": decision == "H1",
        "decision": decision,
        "elo": summary["pairings"][0]["elo"],
        "match": summary,
    }

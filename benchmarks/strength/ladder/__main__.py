# SPDX-License-Identifier: GPL-3.0-or-later
"""One Elo scale for this engine, its networks, Stockfish and Maia, anchored to Stockfish's UCI_Elo.

    python -m benchmarks.strength.ladder [--output FOLDER] [--games N] [--minutes M] [--maia FOLDER]
        [--stockfish PATH] [--player KEY=VALUE,…] [--backend NAME] [--concurrency N] [--workers N] [--json]

The players meet in pairs of openings with reversed colours. The command alternates rounds of games and fits,
and gives the next games to the pairs that reduce the errors most per second. It ends when each player has
--games games or --minutes are over. The same command resumes a killed run from FOLDER/ladder.jsonl; --games
and --minutes may change. The scale is in FOLDER/ladder.json and FOLDER/ladder.md, the games in
FOLDER/ladder.pgn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.common.command_line import FAILED, INTERRUPTED, count, positive
from benchmarks.common.figures import duration
from benchmarks.common.installation import REPOSITORY
from benchmarks.common.progress import Progress
from benchmarks.revisions.machine import this_machine
from benchmarks.strength.ladder.earlier import read_earlier
from benchmarks.strength.ladder.play import Ladder, LadderCampaign, match_config, play_ladder
from benchmarks.strength.ladder.players import (
    LadderPlayer,
    further_players,
    included_networks,
    labelled_stockfish,
    levels,
    maia_networks,
    program_path,
    program_version,
    stockfish_by_nodes,
    with_names,
)
from benchmarks.strength.ladder.report import Conditions, Run, markdown, report_data, shortfalls, table
from engine.apps.campaign.display import QuietView
from engine.apps.games.journal import JournalError
from engine.apps.games.openings import OpeningError
from engine.apps.match.campaign import MatchError
from engine.apps.match.players.player import PlayerError
from engine.options import Options
from engine.workers.executor import ExecutorError
from protocol.common.files import write_atomically
from protocol.common.processes import run_interruptible
from protocol.common.settings.spec import SettingsError

NOTE_SECONDS = 30.0
"""Time between two lines of progress, if the output is no terminal."""


class LadderView(QuietView):
    """Shows progress: one line on a terminal, otherwise a line every NOTE_SECONDS."""

    def __init__(self, ladder: Ladder, progress: Progress) -> None:
        super().__init__(progress.note)
        self._ladder = ladder
        self._progress = progress
        self._next = 0.0

    def started(self, state: LadderCampaign) -> None:
        self.note(f"{state.throughput.concurrency} concurrent games, {state.resumed} games resumed")

    def tick(self, state: LadderCampaign) -> None:
        ladder = self._ladder
        text = f"{ladder.played:,} games, {state.playing} running, {ladder.missing:,} missing"
        self._progress.detail(text)
        if time.perf_counter() >= self._next and not sys.stderr.isatty():
            self._next = time.perf_counter() + NOTE_SECONDS
            self.note(f"{duration(state.throughput.seconds)}  {text}")


def numbers(text: str) -> list[int]:
    """Parse integers with commas between, for argparse; an empty text is an empty list."""
    return [count(part) for part in text.split(",") if part.strip()]


def names(text: str) -> list[str]:
    """Parse names with commas between; an empty text is an empty list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ladder", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    players = parser.add_argument_group("players (an empty list leaves a kind out)")
    players.add_argument("--stockfish", default="stockfish", metavar="PATH", help="(default: in PATH)")
    players.add_argument(
        "--uci-elo",
        type=numbers,
        default="1350,1600,1850,2100,2350,2600,2850",
        metavar="ELO,…",
        help="Stockfish with limited strength, the anchors (default: 1350 to 2850 in steps of 250)",
    )
    players.add_argument(
        "--movetime", type=count, default=100, metavar="MS", help="of the UCI_Elo players (default: 100)"
    )
    players.add_argument(
        "--stockfish-nodes",
        type=numbers,
        default="1000,10000,100000,1000000",
        metavar="N,…",
        help="Stockfish at full strength (default: 1000,10000,100000,1000000)",
    )
    players.add_argument("--maia", type=Path, metavar="FOLDER", help="networks that play at 1 node")
    players.add_argument(
        "--networks",
        type=names,
        default="wavefront-cpu,wavefront-gpu",
        metavar="NAME,…",
        help="networks of this engine (default: wavefront-cpu,wavefront-gpu)",
    )
    players.add_argument(
        "--nodes",
        type=numbers,
        default="1,100,400,800,3200",
        metavar="N,…",
        help="nodes per move of each of --networks (default: 1,100,400,800,3200)",
    )
    players.add_argument(
        "--levels",
        type=numbers,
        default="800,1000,1200,1400,1600,1800,2000,2200,2400,2600,2800",
        metavar="ELO,…",
        help="this engine with limited strength (default: 800 to 2800 in steps of 200)",
    )
    players.add_argument(
        "--player",
        action="append",
        default=[],
        metavar="KEY=VALUE,…",
        help="a further player, as in `wavefront match`",
    )
    players.add_argument(
        "--anchor",
        action="append",
        default=[],
        metavar="NAME=ELO",
        help="a player's Elo on an earlier scale: an anchor, as the UCI_Elo players; may be repeated",
    )
    games = parser.add_argument_group("games")
    games.add_argument("--games", type=count, default=600, help="of each player (default: 600)")
    games.add_argument("--minutes", type=positive, default=0, help="begin no game later (default: no limit)")
    games.add_argument("--seed", type=int, default=1, help="of the order of openings (default: 1)")
    games.add_argument("--concurrency", type=count, default=0, help="(default: as `wavefront match`)")
    games.add_argument("--workers", type=count, default=0, help="processes (default: as `wavefront match`)")
    games.add_argument("--backend", default="auto", help="of this engine's players (default: auto)")
    games.add_argument(
        "--evaluator", default="", metavar="ADDRESS", help="a running one (default: start one)"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", type=Path, default=Path("ladder"), metavar="FOLDER", help="(default: ladder)"
    )
    output.add_argument(
        "--earlier",
        action="append",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="output of another ladder, whose games join the fit; equal names must mean equal players",
    )
    output.add_argument("--restart", action="store_true", help="discard the existing games")
    output.add_argument("--commit", default="", help="of this checkout, if it has no git (default: ask git)")
    output.add_argument("--json", action="store_true", help="print JSON at the end, and no table")
    return parser.parse_args(words)


def all_players(arguments: argparse.Namespace) -> list[LadderPlayer]:
    """Return the players. Raises SettingsError, and ValueError for a missing program or equal names."""
    options = Options(backend=arguments.backend, evaluator=arguments.evaluator)
    players: list[LadderPlayer] = []
    if arguments.uci_elo or arguments.stockfish_nodes:
        path = program_path(arguments.stockfish)
        if path is None:
            raise ValueError(
                f"--stockfish: there is no program {arguments.stockfish}; install it, name its path, or pass "
                "--uci-elo '' --stockfish-nodes ''"
            )
        players += labelled_stockfish(path, arguments.uci_elo, arguments.movetime)
        players += stockfish_by_nodes(path, arguments.stockfish_nodes)
    if arguments.maia is not None:
        players += maia_networks(arguments.maia, options)
    players += included_networks(arguments.networks, arguments.nodes, options)
    players += levels(arguments.levels, options)
    players += further_players(arguments.player, options)
    if len(players) < 2:
        raise ValueError("a ladder needs two players")
    return anchored(with_names(players), arguments.anchor)


def anchored(players: Sequence[LadderPlayer], texts: Sequence[str]) -> list[LadderPlayer]:
    """Return the players with the labels of --anchor. Raises ValueError for other names and no number."""
    labels = {name: float(elo) for name, _, elo in (text.rpartition("=") for text in texts)}
    if unknown := sorted(labels.keys() - {player.config.name for player in players}):
        raise ValueError(f"--anchor: no player is called {', '.join(map(repr, unknown))}")
    return [replace(each, label=labels.get(each.config.name, each.label)) for each in players]


def commit_of_checkout() -> str:
    """Return the checkout's commit, with `-dirty` if files differ; "unknown" without git."""
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def nvidia_devices() -> list[str]:
    """Return the names of the NVIDIA GPUs."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return output.split("\n")[:-1]


def runs_before(summary: Path) -> list[Run]:
    """Return the runs that an existing report names."""
    try:
        return [Run(**run) for run in json.loads(summary.read_text("utf-8"))["runs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def with_all_games(runs: Sequence[Run], games: int) -> list[Run]:
    """Return the runs with `games` games in all. A killed run has more in the journal than in its report."""
    missing = games - sum(each.games for each in runs)
    if not runs or missing <= 0:
        return list(runs)
    return [*runs[:-1], replace(runs[-1], games=runs[-1].games + missing)]


def run(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    """Play, write the reports, and return the exit code."""
    try:
        players = all_players(arguments)
        earlier = [read_earlier(folder) for folder in arguments.earlier]
    except (SettingsError, ValueError) as error:
        print(f"ladder: {error}", file=sys.stderr)
        return FAILED
    config = match_config(
        players,
        arguments.output,
        seed=arguments.seed,
        concurrency=arguments.concurrency,
        workers=arguments.workers,
    )
    ladder = Ladder(players, config, arguments.games)
    programs = {player.config.command[0] for player in players if player.config.is_program}
    versions = {program: program_version(program) for program in sorted(programs)}
    before = [] if arguments.restart else runs_before(config.files.summary)
    this_run = Run(
        command=shlex.join(["python", "-m", "benchmarks.strength.ladder", *words]),
        commit=arguments.commit or commit_of_checkout(),
        machine=str(this_machine()),
        devices=nvidia_devices(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )

    def report() -> dict[str, Any] | None:
        if not ladder.played:
            return None
        played = replace(
            this_run,
            games=ladder.played - campaign.resumed,
            seconds=round(time.perf_counter() - began, 1),
            concurrency=campaign.throughput.concurrency,
        )
        resumed = with_all_games(before, campaign.resumed)
        runs = [*resumed, played] if played.games else resumed
        conditions = Conditions(arguments.seed, arguments.games, arguments.movetime, versions, runs)
        return report_data(ladder, conditions, earlier)

    campaign = LadderCampaign(ladder, report)
    began = time.perf_counter()
    failure, ending = "", "interrupted"
    with Progress() as progress:
        progress.step("ladder")
        view = LadderView(ladder, progress)
        try:
            with contextlib.closing(campaign), contextlib.suppress(KeyboardInterrupt):
                campaign.open(restart=arguments.restart, log=view.note)
                ending = run_interruptible(
                    play_ladder(
                        ladder,
                        campaign,
                        view,
                        minutes=arguments.minutes,
                        games_per_round=2 * (arguments.concurrency or 8),
                    )
                )
        except (JournalError, MatchError, OpeningError, ExecutorError, PlayerError, ValueError) as error:
            failure = str(error)
    data = report()
    if data is not None:
        write_atomically(arguments.output / "ladder.json", (json.dumps(data, indent=2) + "\n").encode())
        write_atomically(arguments.output / "ladder.md", markdown(data).encode())
        print(json.dumps(data) if arguments.json else "\n".join([table(data), *shortfalls(data)]))
    if failure:
        print(f"ladder: {failure}", file=sys.stderr)
        return FAILED
    return INTERRUPTED if ending == "interrupted" else 0


def main(words: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if words is None else words)
    sys.exit(run(parsed(given), given))


if __name__ == "__main__":
    main()

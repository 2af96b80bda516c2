# SPDX-License-Identifier: GPL-3.0-or-later
"""What displays show of self-play: its totals and its speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.games.display import Display, row_table
from engine.selfplay.archive import GameEntry
from engine.selfplay.campaign import SelfPlayCampaign

if TYPE_CHECKING:
    from rich.console import RenderableType


def pace_line(state: SelfPlayCampaign) -> str:
    """Return the speed of self-play as a line."""
    speed = state.throughput
    return (
        f"{speed.concurrency} games at once, {speed.games_per_hour:,.0f} games/h, "
        f"{speed.pool.positions_per_second:,.0f} positions/s evaluated, "
        f"mean batch {speed.pool.mean_batch:,.1f}, {state.positions:,} positions written"
    )


def totals_line(state: SelfPlayCampaign) -> str:
    """Return the totals as a line."""
    totals = state.totals
    wanted = f" of {state.config.games}" if state.config.games >= max(1, totals.games) else ""
    line = (
        f"{totals.games}{wanted} games, White +{totals.results['1-0']} ={totals.results['1/2-1/2']} "
        f"-{totals.results['0-1']}, {totals.plies / max(1, totals.games):.0f} plies each"
    )
    if totals.resign_checked:
        line += f", resigning wrong in {totals.resign_wrong} of {totals.resign_checked} games"
    return line


def game_line(entry: GameEntry) -> str:
    """Return a finished game as a line."""
    return f"game {entry.number}: {entry.result}, {entry.reason}, {entry.plies} plies, {entry.seconds:.1f} s"


def totals_table(state: SelfPlayCampaign) -> RenderableType:
    """Return the totals as a rich table with a line for each."""
    totals, speed = state.totals, state.throughput
    wanted = f" of {state.config.games:,}" if state.config.games else ""
    rows = {
        "games": f"{totals.games:,}{wanted}, {state.playing:,} running",
        "results": f"White +{totals.results['1-0']} ={totals.results['1/2-1/2']} -{totals.results['0-1']}, "
        f"{totals.plies / max(1, totals.games):.0f} plies each",
        "written": f"{totals.positions:,} positions",
        "speed": f"{speed.games_per_hour:,.0f} games/h, {speed.pool.positions_per_second:,.0f} positions/s",
        "batches": f"mean {speed.pool.mean_batch:,.1f}, of {speed.concurrency:,} games at once",
    }
    if totals.resign_checked:
        rows["resigning"] = f"wrong in {totals.resign_wrong} of {totals.resign_checked} games played on"
    return row_table(f"self-play in {state.config.output}", rows)


def _heading(state: SelfPlayCampaign) -> list[str]:
    return [f"{state.resumed} games are played already: {state.config.output}"] if state.resumed else []


DISPLAY: Display[SelfPlayCampaign, GameEntry] = Display(
    heading=_heading,
    game=lambda state, entry: game_line(entry),
    report=lambda state: [f"  {totals_line(state)}; {pace_line(state)}"],
    table=lambda state, width: totals_table(state),
    messages=4,
)

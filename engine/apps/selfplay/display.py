# SPDX-License-Identifier: GPL-3.0-or-later
"""What displays show of self-play: its totals and its speed."""

from __future__ import annotations

from engine.apps.campaign.display import Display, row_table
from engine.apps.selfplay.archive import GameEntry
from engine.apps.selfplay.campaign import SelfPlayCampaign


def rows(state: SelfPlayCampaign) -> dict[str, str]:
    """Return the cells of the table, by heading."""
    totals, speed = state.totals, state.throughput
    wanted = f" of {state.config.games:,}" if state.config.games >= max(1, totals.games) else ""
    told = {
        "games": f"{totals.games:,}{wanted} games, {state.playing:,} running",
        "results": f"White +{totals.results['1-0']} ={totals.results['1/2-1/2']} -{totals.results['0-1']}, "
        f"{totals.plies / max(1, totals.games):.0f} plies each",
        "written": f"{totals.positions:,} positions",
        "speed": f"{speed.games_per_hour:,.0f} games/h, {speed.pool.positions_per_second:,.0f} positions/s",
        "batches": f"mean batch {speed.pool.mean_batch:,.1f}, {speed.concurrency:,} games at once",
    }
    if totals.resign_checked:
        told["resigning"] = f"wrong in {totals.resign_wrong} of {totals.resign_checked} games played on"
    return told


def game_line(entry: GameEntry) -> str:
    """Return a finished game as a line."""
    return f"game {entry.number}: {entry.result}, {entry.reason}, {entry.plies} plies, {entry.seconds:.1f} s"


def _heading(state: SelfPlayCampaign) -> list[str]:
    return [f"{state.resumed} games are played already: {state.config.output}"] if state.resumed else []


DISPLAY: Display[SelfPlayCampaign, GameEntry] = Display(
    heading=_heading,
    game=lambda state, entry: game_line(entry),
    report=lambda state: [f"  {'; '.join(rows(state).values())}"],
    table=lambda state, width: row_table(f"self-play in {state.config.output}", rows(state)),
    messages=4,
)

# SPDX-License-Identifier: GPL-3.0-or-later
"""What displays show of labelling: its totals and its speed."""

from __future__ import annotations

from engine.apps.campaign import Display, row_table
from training.label.campaign import LabelCampaign
from training.label.game import LabelledGame


def rows(state: LabelCampaign) -> dict[str, str]:
    """Return the cells of the table, by heading."""
    totals, speed, settings = state.totals, state.throughput, state.settings
    pace = speed.moves_per_second
    wanted = settings.positions
    if settings.games:  # Positions are estimated from the games so far.
        wanted = round(settings.games * totals.positions / max(1, totals.games))
    left = wanted - totals.positions
    remaining = f", {max(1.0, left / pace / 60):,.0f} min left" if pace > 0 and left > 0 else ""
    share = min(1.0, totals.positions / max(1, wanted))
    told = {
        "positions": f"{totals.positions:,} of {'about ' if settings.games else ''}{wanted:,} ({share:.1%}), "
        f"{totals.branches:,} of them beside games",
        "games": f"{totals.games:,}, White +{totals.results['white_won']:,} ={totals.results['draw']:,} "
        f"-{totals.results['black_won']:,}, {totals.plies / max(1, totals.games):.0f} plies each",
        "speed": f"{pace:,.0f} positions/s by {speed.concurrency} engines{remaining}",
    }
    if totals.dropped:
        told["failures"] = f"{totals.dropped:,} games dropped"
    return told


def summary_line(state: LabelCampaign) -> str:
    """Return the state in one line."""
    return "; ".join(rows(state).values())


def _heading(state: LabelCampaign) -> list[str]:
    return [f"{state.resumed:,} games are there already: {state.folder}"] if state.resumed else []


DISPLAY: Display[LabelCampaign, LabelledGame] = Display(
    heading=_heading,
    game=lambda state, game: f"game {game.number} is dropped: {game.dropped}" if game.dropped else "",
    report=lambda state: [summary_line(state)],
    table=lambda state, width: row_table(f"labelling to {state.folder}", rows(state)),
    messages=4,
)

# SPDX-License-Identifier: GPL-3.0-or-later
"""What displays show of a match: standings, its SPRT and its speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.apps.campaign.display import Display
from engine.apps.games.record import GameRecord
from engine.apps.match.abbreviation import abbreviated, telling_width
from engine.apps.match.campaign import MatchCampaign
from engine.apps.match.config import MatchConfig
from engine.apps.match.results.standings import Standings
from engine.apps.match.results.statistics import elo, likelihood_of_superiority, normalised_elo

if TYPE_CHECKING:
    from rich.console import RenderableType

REPORT_GAMES = 10
"""Games between two reports of the standings in a log."""

SHORTEST_NAME = 8
"""Minimum characters of players' names in a table."""

PAIRINGS_SHOWN = 15
"""Maximum number of pairings printed one by one."""


def heading(state: MatchCampaign) -> list[str]:
    """Return the players and the number of games, and that of resumed ones."""
    config = state.config
    names = ", ".join(f"{player.name} ({player.time})" for player in config.players)
    lines = [f"{config.event}: {names}; {len(config.schedule)} games"]
    if state.resumed:
        lines.append(f"{state.resumed} games are played already: {config.files.journal}")
    return lines


def game_line(state: MatchCampaign, record: GameRecord) -> str:
    """Return a finished game as a line."""
    players = state.config.players
    white, black = players[record.white].name, players[record.black].name
    return (
        f"game {record.number + 1} ({state.standings.games} of {len(state.standings.schedule)} played): "
        f"{white} – {black} {record.result}, {record.explanation}, {(len(record.moves) + 1) // 2} moves, "
        f"{record.seconds:.1f} s"
    )


def standings_lines(config: MatchConfig, standings: Standings) -> list[str]:
    """Return the standings as lines, best player first."""
    lines = []
    for player in ranking(standings) if len(config.players) > 2 else [0]:
        tally = standings.total(player)
        if not tally.games:
            continue
        against = f" vs {config.players[1].name}" if len(config.players) == 2 else ""
        pairs = f", pairs {list(tally.pairs)}" if tally.finished_pairs else ""
        lines.append(
            f"{config.players[player].name}{against}: {tally.games} games, "
            f"+{tally.wins} ={tally.draws} -{tally.losses}, {100 * tally.score:.1f} %, "
            f"Elo {elo(tally)}, normalised {normalised_elo(tally)}, "
            f"LOS {100 * likelihood_of_superiority(tally):.1f} %, draws {100 * tally.draw_ratio:.0f} %{pairs}"
        )
    if standings.sprt is not None:
        lines.append(sprt_line(standings))
    return lines


def sprt_line(standings: Standings) -> str:
    """Return the SPRT as a line."""
    sprt = standings.sprt
    assert sprt is not None
    decision = {
        "continue": "not decided",
        "H0": f"H0 accepted: not stronger than {sprt.elo0:g}",
        "H1": f"H1 accepted: stronger than {sprt.elo0:g}, as {sprt.elo1:g}",
    }[standings.decision]
    return (
        f"SPRT {sprt.elo0:g} to {sprt.elo1:g} {sprt.model} Elo: LLR {standings.llr():+.2f} "
        f"({sprt.lower:.2f} to {sprt.upper:.2f}), {decision}"
    )


def pairs_lines(config: MatchConfig, standings: Standings) -> list[str]:
    """Return the frequencies of the first player's points per pair, and the share of draws. Empty before the
    first pair, and for more than two players."""
    if len(config.players) != 2 or not standings.tally(0, 1).finished_pairs:
        return []
    tally = standings.tally(0, 1)
    pairs = " ".join(str(count) for count in tally.pairs)
    name = config.players[0].name
    return [f"pairs by points of {name} (0, ½, 1, 1½, 2): {pairs}; draws {100 * tally.draw_ratio:.0f} %"]


def pairing_lines(config: MatchConfig, standings: Standings) -> list[str]:
    """Return the results of each pairing of more than two players. If there are too many, refer to the
    summary."""
    if len(config.players) == 2:
        return []
    tallies = {pairing: standings.tally(*pairing) for pairing in standings.schedule.pairings}
    if len(tallies) > PAIRINGS_SHOWN:
        return [f"{len(tallies)} pairings: {config.files.summary} has the results of each"]
    return [
        f"{config.players[first].name} – {config.players[second].name}: "
        f"+{tally.wins} ={tally.draws} -{tally.losses}, {100 * tally.score:.1f} %"
        for (first, second), tally in tallies.items()
        if tally.games
    ]


def reasons_line(standings: Standings) -> str:
    """Return the frequencies of the reasons for ends."""
    return "ends: " + ", ".join(f"{reason} {count}" for reason, count in standings.reasons.most_common())


def speed_line(state: MatchCampaign) -> str:
    """Return the match's speed and remaining time."""
    speed = state.throughput
    parts = [f"{speed.concurrency} games at once", f"{speed.games_per_hour:,.0f} games/h"]
    parts.append(f"{speed.moves_per_second:,.1f} moves/s")
    if speed.pool.evaluations:
        parts.append(f"{speed.pool.positions_per_second:,.0f} positions/s")
        parts.append(f"mean batch {speed.pool.mean_batch:,.1f}")
    left = len(state.standings.schedule) - state.standings.games
    if speed.games_per_hour and left:
        parts.append(f"{_duration(left / speed.games_per_hour * 3600)} left")
    return ", ".join(parts)


def ranking(standings: Standings) -> list[int]:
    """Return the player numbers, best score first."""

    def score(player: int) -> float:
        tally = standings.total(player)
        return tally.score if tally.games else 0.5

    return sorted(range(len(standings.players)), key=score, reverse=True)


def progress_lines(state: MatchCampaign, progress: str) -> list[str]:
    """Return the running and resumed games, and the speed. progress: precedes them."""
    resumed = f", {state.resumed} resumed" if state.resumed else ""
    return [f"{progress}, {state.playing} running{resumed}", speed_line(state)]


def _below(state: MatchCampaign) -> list[str]:
    standings = state.standings
    lines = progress_lines(state, f"{standings.games} of {len(standings.schedule)} games")
    if standings.sprt is not None:
        lines.append(sprt_line(standings))
    return lines + pairs_lines(state.config, standings)


def _report(state: MatchCampaign) -> list[str]:
    return ["  " + line for line in (*standings_lines(state.config, state.standings), speed_line(state))]


def standings_table(config: MatchConfig, standings: Standings, width: int) -> RenderableType:
    """Return the standings as a rich table, with as many columns as fit into `width` characters."""
    from rich.table import Table
    from rich.text import Text

    columns = _columns(config, standings)
    for dispensable in ("limits", "normalised", "games", "LOS"):
        if _width(columns) > width:
            columns.pop(dispensable, None)
    least = max(SHORTEST_NAME, telling_width(columns["player"]))
    for dispensable in (
        "score",
        "results",
    ):  # Truncate names before dropping these, except where they differ.
        if _width(columns, longest_name=least) > width:
            columns.pop(dispensable)
    longest = max(len("player"), *map(len, columns["player"]))
    names = max(min(SHORTEST_NAME, longest), longest - max(0, _width(columns) - width))
    columns["player"] = abbreviated(columns["player"], names)
    table = Table(title=Text(config.event, "table.title"))
    for heading, cells in columns.items():
        if heading == "player":
            table.add_column(heading, no_wrap=True, width=names)
        else:
            table.add_column(heading, justify="right", no_wrap=True, min_width=max(map(len, cells)))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))  # As Text: brackets in names are not markup.
    return table


def _columns(config: MatchConfig, standings: Standings) -> dict[str, list[str]]:
    """Return the cells of the table by heading, best player first."""
    order = ranking(standings)
    players = [config.players[player] for player in order]
    tallies = [standings.total(player) for player in order]
    columns = {
        "player": [player.name for player in players],
        "limits": [str(player.time) for player in players],
        "games": [str(tally.games) for tally in tallies],
        "results": [f"+{tally.wins} ={tally.draws} -{tally.losses}" for tally in tallies],
        "score": [f"{100 * tally.score:.1f} %" if tally.games else "–" for tally in tallies],
        "Elo": [str(elo(tally)) for tally in tallies],
        "normalised": [str(normalised_elo(tally)) for tally in tallies],
        "LOS": [
            f"{100 * likelihood_of_superiority(tally):.1f} %" if tally.games else "–" for tally in tallies
        ],
    }
    faults = [standings.players[player].faults.total() for player in order]
    if any(faults):
        columns["faults"] = [str(count or "") for count in faults]
    return columns


def _width(columns: dict[str, list[str]], longest_name: int | None = None) -> int:
    """Return the width of a table: a border and two blanks per column, and a last border. longest_name: limit
    of names."""
    widths = {heading: max(len(heading), *map(len, cells)) for heading, cells in columns.items()}
    if longest_name is not None:
        widths["player"] = min(widths["player"], longest_name)
    return 1 + sum(3 + width for width in widths.values())


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


DISPLAY: Display[MatchCampaign, GameRecord] = Display(
    heading=heading,
    game=game_line,
    report=_report,
    reports=lambda state: state.standings.games // REPORT_GAMES,
    table=lambda state, width: standings_table(state.config, state.standings, width),
    below=_below,
)

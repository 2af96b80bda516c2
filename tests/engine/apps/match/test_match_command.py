# SPDX-License-Identifier: GPL-3.0-or-later
"""`run_engine.py match` as a process, and what it shows."""

import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from engine.apps.campaign.campaign import Throughput
from engine.apps.campaign.display import LiveView, PlainView, shows_tables
from engine.apps.games.record import GameRecord, MoveRecord, Reason, Result
from engine.apps.match.adjudication import Adjudication
from engine.apps.match.campaign import MatchCampaign
from engine.apps.match.config import MatchConfig, PlayerConfig
from engine.apps.match.display import DISPLAY, pairing_lines, speed_line, standings_table
from engine.apps.match.plot import check_plot, elo_history, plot_elo
from engine.apps.match.results.sprt import Sprt
from engine.search.pool import PoolStatistics
from protocol.common.outputs import PlotError
from tests import programs
from tests.engine.apps.match.matches import match, play, program, replay

pytestmark = pytest.mark.integration


def run(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return programs.command("match", *flags, status=None, cwd=folder)


def test_one_line_plays_two_option_sets_and_prints_json(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("--player", "name=low,cpuct=1", "--player", "name=high,cpuct=3", "--each", "backend=random"),
        *("--nodes", "8", "--games", "4", "--max-moves", "30", "--json", "--plot", "elo.png"),
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["games"] == 4
    assert [player["name"] for player in summary["players"]] == ["low", "high"]
    assert "game 3 (" in done.stderr, "progress goes where the summary does not"
    (pgn,) = tmp_path.glob("match-*.pgn")
    assert len(replay(pgn)) == 4
    assert json.loads(pgn.with_suffix(".json").read_text("utf-8"))["games"] == 4
    assert (tmp_path / "elo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        ((), 2, "a match needs two players"),
        (("missing.toml",), 2, "cannot read missing.toml"),
        (("--player", "cpukt=1", "--player", "nodes=1"), 2, "did you mean 'cpuct'"),
        (("--player", "nodes=1", "--player", "nodes=2", "--openings", "none.epd"), 1, "none.epd"),
        (("--player", "no-such-engine", "--player", "backend=random"), 1, "cannot start no-such-engine"),
        (("--player", "nodes=1", "--player", "nodes=2", "--syzygy", "."), 1, "no Syzygy tables"),
        (("--player", "nodes=1", "--player", "nodes=2", "--output", "x/\0"), 1, "cannot"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, flags: tuple[str, ...], status: int, message: str) -> None:
    if any("\0" in flag for flag in flags):
        (tmp_path / "file").write_text("", "utf-8")
        flags = (*flags[:-1], "file/x")
    done = run(tmp_path, *flags)
    assert done.returncode == status
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


CONFIG = MatchConfig((PlayerConfig("first"), PlayerConfig("second")), games=40, sprt=Sprt(0, 10))


def state_after(games: int, config: MatchConfig = CONFIG) -> tuple[MatchCampaign, list[GameRecord]]:
    """A match in which White wins two of three games."""
    state = MatchCampaign(config)
    records = []
    results: tuple[Result, ...] = ("1-0", "1-0", "0-1")
    for number in range(games):
        game = config.schedule[number]
        record = GameRecord(
            *(number, game.pair, game.white, game.black, results[number % 3], Reason.CHECKMATE, "none"),
            moves=(MoveRecord("e2e4"),) * 61,
            seconds=2.0,
        )
        state.add(record.outcome)
        records.append(record)
    asked = PoolStatistics(evaluations=500_000, seconds=100.0, mean_batch=31.5, moves=games * 61)
    state.throughput = Throughput(seconds=100.0, concurrency=8, games=games, pool=asked)
    return state, records


def test_a_log_gets_a_line_per_game_and_the_standings_now_and_then() -> None:
    stream = io.StringIO()
    view = PlainView(DISPLAY, stream)
    view.started(state_after(9)[0])
    state, records = state_after(10)
    view.game_over(state, records[-1])
    view.note("the evaluator is started again")
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Wavefront match: first (unlimited), second (unlimited); 40 games"
    assert lines[1] == "game 10 (10 of 40 played): second – first 1-0, White mates, 31 moves, 2.0 s"
    assert lines[2].startswith("  first vs second: 10 games, +4 =0 -6, 40.0 %, Elo -70.4 ± ")
    assert lines[3].startswith("  SPRT 0 to 10 logistic Elo: LLR ")
    assert lines[4] == (
        "  8 games at once, 360 games/h, 6.1 moves/s, 5,000 positions/s, mean batch 31.5, 5 min left"
    )
    assert lines[5] == "the evaluator is started again"
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_a_table() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)
    state, records = state_after(12)
    with LiveView(DISPLAY, console) as view:
        view.started(state)
        view.note("a note")
        view.game_over(state, records[-1])
        view.tick(state)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in ("first", "second", "LOS", "mean batch 31.5", "LLR", "a note", "game 12", "12 of 40 games"):
        assert part in text


def test_more_than_two_players_are_shown_one_against_the_other() -> None:
    players = tuple(PlayerConfig(f"p{number}") for number in range(3))
    config = MatchConfig(players, games=2, output="cup")
    state, _ = state_after(6, config)
    assert pairing_lines(config, state.standings) == [
        "p0 – p1: +1 =0 -1, 50.0 %",
        "p0 – p2: +0 =0 -2, 0.0 %",
        "p1 – p2: +2 =0 -0, 100.0 %",
    ]
    many = MatchConfig(tuple(PlayerConfig(f"p{number}") for number in range(9)), games=2, output="cup")
    (line,) = pairing_lines(many, state_after(2, many)[0].standings)
    assert line == "36 pairings: cup.json has the results of each"
    assert pairing_lines(CONFIG, state_after(4)[0].standings) == []


def shown_table(config: MatchConfig, width: int) -> str:
    """The table after 20 games in a terminal of a width."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None)
    console.print(standings_table(config, state_after(20, config)[0].standings, width))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_leaves_out_columns_instead_of_cutting_numbers(width: int) -> None:
    text = shown_table(CONFIG, width)
    assert "…" not in text
    for part in ("first", "second", "+10 =0 -10", "50.0 %", "Elo"):
        assert part in text
    assert ("normalised" in text) == (width > 60)
    assert len(text.splitlines()) == 7  # No cell takes two lines.


@pytest.mark.parametrize("name", ["first", "a name that is far too long for any terminal", "[bold]v1[/dev]"])
@pytest.mark.parametrize("width", [40, 80])
def test_the_table_cuts_names_before_results(width: int, name: str) -> None:
    config = replace(CONFIG, players=(PlayerConfig(name), PlayerConfig("other")), event="an event [/x]")
    text = shown_table(config, width)
    for part in (name[:7], "+10 =0 -10", "Elo", " ± ", "an event [/x]"):
        assert part in text
    assert ("50.0 %" in text) == (width == 80)
    assert all(line.rstrip().endswith(("┓", "┃", "┩", "│", "┘", "]")) for line in text.splitlines())


@pytest.mark.parametrize("difference", ["cpuct=1.745", "a-candidate-with-a-name"])
def test_table_shows_how_names_differ_in_60_columns(difference: str) -> None:
    players = (PlayerConfig(f"wavefront-gpu {difference} nodes"), PlayerConfig("wavefront-gpu base nodes"))
    text = shown_table(replace(CONFIG, players=players), 60)
    for part in (difference, "base", "Elo", " ± "):
        assert part in text
    assert max(map(len, text.splitlines())) <= 60


def test_a_terminal_that_cannot_draw_anew_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not shows_tables(Console(force_terminal=True))
    monkeypatch.setenv("TERM", "xterm")
    assert shows_tables(Console(force_terminal=True))
    assert not shows_tables(Console(file=io.StringIO()))


def test_speed_says_nothing_of_an_evaluator_that_there_is_not() -> None:
    state, _ = state_after(4)
    state.throughput = replace(state.throughput, pool=PoolStatistics(moves=100))
    assert "positions" not in speed_line(state)


def test_the_history_of_elo_ends_with_the_final_value() -> None:
    state, _ = state_after(40, replace(CONFIG, games=2000, sprt=None))
    history = elo_history(state.config, state.outcomes)
    assert [games for games, _ in history] == list(range(1, 41))
    wins_minus_losses = state.standings.tally(0, 1).wins - state.standings.tally(0, 1).losses
    assert (history[-1][1][0].value > 0) == (wins_minus_losses > 0)
    assert history[-1][1][1].value == pytest.approx(-history[-1][1][0].value)


def test_a_plot_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    state, _ = state_after(10)
    plot_elo(tmp_path / "elo.svg", CONFIG, state.outcomes)
    assert "first against second" in (tmp_path / "elo.svg").read_text("utf-8")
    with pytest.raises(PlotError, match="before the first game"):
        plot_elo(tmp_path / "x.png", CONFIG, [])
    with pytest.raises(PlotError, match="cannot draw"):
        plot_elo(tmp_path / "no" / "x.png", CONFIG, state.outcomes)


def test_a_plot_that_cannot_be_made_is_refused_before_the_match(tmp_path: Path) -> None:
    check_plot(tmp_path / "new" / "elo.png")
    assert (tmp_path / "new").is_dir()
    for name in ("elo.nonsense", "elo"):
        with pytest.raises(PlotError, match="is no image file"):
            check_plot(tmp_path / name)
    (tmp_path / "file").write_text("")
    with pytest.raises(PlotError, match="cannot make the folder"):
        check_plot(tmp_path / "file" / "elo.png")


def test_syzygy_ends_games(tmp_path: Path) -> None:
    from engine.apps.games.openings import OpeningSettings
    from engine.apps.match.adjudication import TablebaseRule
    from tests.paths import TABLES

    book = tmp_path / "book.epd"
    book.write_text("4k3/8/8/8/8/3p4/4P3/4K3 w - -\n", "utf-8")
    config = match(
        tmp_path,
        [program("a"), program("b")],
        openings=OpeningSettings(str(book)),
        adjudication=Adjudication(tablebase=TablebaseRule((str(TABLES),))),
    )
    _, _, recorder = play(config)
    assert [record.reason for record in recorder.records] == [Reason.TABLEBASE] * 2

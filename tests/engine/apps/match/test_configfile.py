# SPDX-License-Identifier: GPL-3.0-or-later
"""A match's configuration from TOML and flags."""

import tomllib
from pathlib import Path

import pytest

from engine.apps.games.identity import differences
from engine.apps.games.openings import OpeningSettings
from engine.apps.match.adjudication import DrawRule, ResignRule, TablebaseRule
from engine.apps.match.config import MatchConfig, PlayerConfig
from engine.apps.match.configfile import DEFAULT_TIME, match_config
from engine.apps.match.results.sprt import Sprt
from engine.apps.match.timecontrol import TimeControl
from engine.commands import match
from engine.commands.match import config_of_arguments
from engine.options import Options
from protocol.common.settings.sources import read_document
from protocol.common.settings.spec import SettingsError
from tests.engine.flags import parser_of
from tests.paths import REPOSITORY


def from_toml(text: str) -> MatchConfig:
    return match_config(tomllib.loads(text), "match.toml")


def from_flags(*flags: str) -> MatchConfig:
    return config_of_arguments(parser_of(match).parse_args(flags))


TWO = "[[player]]\n[[player]]\nnodes = 100\n"


def test_a_whole_file() -> None:
    config = from_toml("""
        event = "test"
        format = "gauntlet"
        games = 20
        seed = 7
        chess960 = true
        concurrency = 8
        time_margin_ms = 10
        stall_seconds = 5
        output = "out/test"
        [defaults]
        tc = "10+0.1"
        backend = "random"
        [[player]]
        name = "a"
        cpuct = 2.0
        [[player]]
        weights = "net.pb.gz"
        nodes = 400
        [[player]]
        program = ["stockfish", "-x"]
        movetime = 100
        Hash = 16
        UCI_LimitStrength = true
        [openings]
        file = "book.epd"
        order = "sequential"
        plies = 8
        start = 3
        [adjudication]
        max_moves = 200
        [adjudication.resign]
        score = 500
        two_sided = true
        [adjudication.draw]
        from_move = 30
        [adjudication.tablebase]
        paths = ["/tables"]
        results = "wins"
    """)
    own = Options(chess960=True, backend="random")
    assert config.players == (
        PlayerConfig("a", TimeControl(10_000, 100), own.changed(cpuct=2.0)),
        PlayerConfig("net", TimeControl(nodes=400), own.changed(weights="net.pb.gz")),
        PlayerConfig(
            "stockfish",
            TimeControl(movetime_ms=100),
            command=("stockfish", "-x"),
            uci_options={"Hash": 16, "UCI_LimitStrength": True},
        ),
    )
    assert config.openings == OpeningSettings("book.epd", "sequential", 8, 3)
    assert config.adjudication.resign == ResignRule(500, two_sided=True)
    assert config.adjudication.draw == DrawRule(from_move=30)
    assert config.adjudication.max_moves == 200
    assert config.adjudication.tablebase == TablebaseRule(("/tables",), results="wins")
    assert (config.games, config.seed, config.concurrency) == (20, 7, 8)
    assert str(config.files.pgn) == str(Path("out/test.pgn"))
    assert len(config.schedule) == 40


def test_flags_make_the_same_match_as_a_file() -> None:
    flags = from_flags(
        *(
            "--player",
            "name=a,cpuct=2.0",
            "--player",
            'name=sf,program=stockfish,args="-x -y",Skill Level=5,nodes=7',
        ),
        *("--each", "backend=random", "--tc", "60+0.6", "--games", "20", "--openings", "book.epd"),
        *("--sprt", "elo0=0,elo1=10,model=normalised", "--resign", "--draw", "moves=5", "--output", "x"),
    )
    file = from_toml("""
        games = 20
        output = "x"
        [defaults]
        tc = "60+0.6"
        backend = "random"
        [[player]]
        name = "a"
        cpuct = 2.0
        [[player]]
        name = "sf"
        program = "stockfish"
        args = ["-x", "-y"]
        "Skill Level" = "5"
        nodes = 7
        [openings]
        file = "book.epd"
        [sprt]
        elo1 = 10
        model = "normalised"
        [adjudication.resign]
        [adjudication.draw]
        moves = 5
    """)
    assert flags == file
    assert flags.sprt == Sprt(0, 10, model="normalised")


def test_flags_win_over_the_file_and_their_limits_replace_its_limits(tmp_path: Path) -> None:
    path = tmp_path / "gauntlet.toml"
    path.write_text('games = 10\n[defaults]\ntc = "1+1"\n[[player]]\n[[player]]\nname = "b"\n', "utf-8")
    config = from_flags(str(path), "--games", "6", "--nodes", "50", "--player", "name=c")
    assert config.games == 6
    assert [player.name for player in config.players][1:] == ["b", "c"]
    assert all(player.time == TimeControl(nodes=50) for player in config.players)
    assert config.output == "gauntlet"


def test_options_are_those_of_players_without_their_own() -> None:
    config = from_flags("--backend", "random", "--player", "name=a", "--player", "backend=uniform,threads=2")
    assert [player.options.backend for player in config.players] == ["random", "uniform"]


def test_one_line_with_two_networks(tmp_path: Path) -> None:
    config = from_flags("--player", "nets/a.pb.gz", "--player", "weights=nets/b.pb.gz,nodes=800")
    assert [player.name for player in config.players] == ["a", "b"]
    assert [player.time.nodes for player in config.players] == [DEFAULT_TIME.nodes, 800]


@pytest.mark.parametrize("name", ["wavefront-cpu", "wavefront-gpu"])
def test_player_is_an_included_network_when_its_name_is_given(name: str) -> None:
    config = from_flags("--player", name, "--player", f"{name},nodes=800")
    assert [(player.options.weights, player.is_program) for player in config.players] == [(name, False)] * 2


def test_players_without_a_name_get_different_ones() -> None:
    names = [player.name for player in from_toml(TWO).players]
    assert names == ["wavefront 400 nodes", "wavefront 100 nodes"]
    config = from_flags("--player", "cpuct=1", "--player", "cpuct=2")
    assert [player.name for player in config.players] == ["wavefront cpuct=1", "wavefront cpuct=2"]


def test_files_are_named_after_the_match_by_default() -> None:
    one, same, other = from_toml(TWO), from_toml("games = 8\n" + TWO), from_toml("seed = 2\n" + TWO)
    assert one.files == same.files
    assert one.files.pgn != other.files.pgn
    assert one.files.journal.name == f"match-{one.fingerprint}.jsonl"
    inside = from_toml('output = "folder/"\n' + TWO)
    assert inside.files.pgn == Path("folder") / one.files.pgn
    assert from_toml('output = "a.pgn"\n' + TWO).files == from_toml('output = "a"\n' + TWO).files


def test_identity_has_the_settings_that_change_results(tmp_path: Path) -> None:
    one = from_toml(TWO)
    assert differences(one.identity(), from_toml("games = 8\nconcurrency = 3\n" + TWO).identity()) == []
    (line,) = differences(one.identity(), from_toml("[openings]\nplies = 2\n" + TWO).identity())
    assert line == "openings plies: 0 then, 2 now"
    elsewhere = from_toml('[defaults]\nevaluator = "tcp://127.0.0.1:5"\n' + TWO)
    assert differences(one.identity(), elsewhere.identity()) == []
    network = tmp_path / "net.pb.gz"
    network.write_bytes(b"one")
    first = from_flags("--player", str(network), "--player", "nodes=1").identity()
    network.write_bytes(b"two")
    second = from_flags("--player", str(network), "--player", "nodes=1").identity()
    assert "sha256" in differences(first, second)[0]


def test_options_of_all_programs_are_given_once() -> None:
    programs = ("--player", "program=a,hash=2", "--player", "program=b,option.Ponder=false")
    config = from_flags(*programs, "--player", "nodes=5", "--each", "option.Hash=16,option.Threads=2,cpuct=3")
    first, second, engine = config.players
    assert first.uci_options == {"Threads": "2", "hash": "2"}
    assert second.uci_options == {"Hash": "16", "Threads": "2", "Ponder": "false"}
    assert engine.options.cpuct == 3
    file = from_toml("""
        defaults = {option.Hash = "16", "option.Threads" = "2", cpuct = 3}
        player = [{program = "a", hash = "2"}, {program = "b", option.Ponder = "false"}, {nodes = 5}]
    """)
    assert [player.uci_options for player in file.players] == [
        player.uci_options for player in config.players
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--each", "hash=16"), "hash is an option of this engine, and no player is: .* option.NAME"),
        (("--threads", "2"), "threads is an option of this engine"),
        (("--player", "option.Hash=1"), "option.Hash belongs to a program"),
        (("--player", "program=c,Hash=1,option.Hash=1"), "Hash is given twice"),
        (("--each", "option=1"), "options of programs are written option.NAME = value"),
    ],
)
def test_options_that_nobody_would_take_are_refused(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        from_flags("--player", "program=a", "--player", "program=b", *flags)


@pytest.mark.parametrize("directory", ["", "there"])
def test_a_program_that_was_built_anew_is_another_player(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    monkeypatch.chdir(tmp_path)
    program = Path(directory, "engine")
    program.parent.mkdir(exist_ok=True)
    program.write_bytes(b"old")
    player = f"program=./engine,directory={directory}"
    config = from_flags("--player", player, "--player", "nodes=1")
    files = config.files
    before = config.identity()
    program.write_bytes(b"newer")
    (line,) = differences(before, config.identity())
    assert line.startswith("players 1 program: 'sha256")
    assert config.files == files  # It may be built during the match.


def test_a_book_counts_by_its_content(tmp_path: Path) -> None:
    books = [tmp_path / name for name in ("a.epd", "b.epd")]
    books[0].write_text("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", "utf-8")
    books[1].write_text("4k3/8/8/8/8/8/3P4/4K3 w - - 0 1", "utf-8")
    players = ("--player", "nodes=2", "--player", "nodes=1")
    a, b = (from_flags(*players, "--openings", str(book)).identity() for book in books)
    (line,) = differences(a, b)
    assert line.startswith("openings file: 'sha256")
    copy = tmp_path / "copy.epd"
    copy.write_bytes(books[0].read_bytes())
    assert from_flags(*players, "--openings", str(copy)).identity() == a


def test_the_file_in_configs_shows_the_defaults() -> None:
    path = REPOSITORY / "configs" / "match.toml"
    config = match_config(read_document(path), "configs/match.toml")
    plain = match_config({"player": [{"name": "first"}, {"name": "second"}]}, "")
    identity, expected = config.identity(), plain.identity()
    identity.pop("players"), expected.pop("players")
    assert identity == expected
    assert (config.games, config.concurrency, config.stall_seconds, config.event) == (
        plain.games,
        plain.concurrency,
        plain.stall_seconds,
        plain.event,
    )
    assert config.players[0].time == DEFAULT_TIME


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("games = 10", "two players"),
        ("gamse = 10\n" + TWO, "no such key: 'gamse'; did you mean 'games'"),
        ("games = 3\n" + TWO, "3 is odd"),
        ("games = 0\n" + TWO, "games is a whole number from 1 on, not 0"),
        ("games = 20_000_000_000\n" + TWO, "from 1 to 1,000,000,000"),
        ("games = true\n" + TWO, "games is a whole number"),
        ("games = 2.5\n" + TWO, "whole number"),
        ('format = "swiss"\n' + TWO, "round-robin, gauntlet"),
        ("pairs = 1\n" + TWO, "pairs is true or false"),
        ("[openings]\nfiles = 1\n" + TWO, r"\[openings\]: no such key: 'files'; did you mean 'file'"),
        ("openings = 3\n" + TWO, r"\[openings\] is a table"),
        ("[sprt]\nelo0 = 5\nelo1 = 0\n" + TWO, r"\[sprt\]: elo0 must be below"),
        ("[sprt]\nelo0 = -2000\n" + TWO, r"\[sprt\]: elo0 is a number from -1,000 to 1,000"),
        ('[sprt]\nmodel = "bayesian"\n' + TWO, r"\[sprt\]: model is one of logistic, normalised"),
        ("[adjudication.tablebase]\n" + TWO, r"\[adjudication.tablebase\]: paths names no folder"),
        ("[adjudication.draw]\nenabled = false\nmovse = 3\n" + TWO, "did you mean 'moves'"),
        ("[sprt]\nenabled = false\nelo2 = 3\n" + TWO, "did you mean 'elo[01]'"),
        ("[defaults]\nhash = -5\n" + TWO, r"match.toml: \[defaults\]: Hash is a whole number from 1"),
        ("[[player]]\n[[player]]\ncpukt = 2", "player 2: no such option: 'cpukt'; did you mean 'cpuct'"),
        ("[[player]]\n[[player]]\ncmd = 'stockfish'", "player 2: no such option: 'cmd'; here it is program"),
        ("[[player]]\n[[player]]\nnode = 20", "no such option: 'node'; did you mean 'nodes'"),
        ("[defaults]\nmovetme = 20\n" + TWO, "did you mean 'movetime'"),
        ("[[player]]\n[[player]]\ncpuct = 2000", "player 2: CPuct is a number from 0 to 100"),
        ('[[player]]\n[[player]]\ntc = "soon"', "player 2: tc: 'soon' is not a clock"),
        ('[[player]]\n[[player]]\ntc = "1+1"\nmovetime = 5', "exclude each other"),
        ("[[player]]\n[[player]]\nnodes = 0", "nodes is a whole number from 1"),
        ('[[player]]\n[[player]]\nargs = "x"', "args belong to a program"),
        ('[[player]]\nname = "x"\n[[player]]\nname = "x"', "match.toml: two players are called 'x'"),
        ("player = 5", "player 1 is a table|two players"),
        ("[sprt]\n" + TWO + "[[player]]\n", "between two players, not 3"),
        ("[sprt]\nalpha = 0.7\n" + TWO, r"match.toml: \[sprt\]: alpha is between 0 and 0.5"),
        ("[[player]]\n[[player]]\nprogram = 'x'\nargs = '\"'", "player 2: No closing quotation"),
        ('[[player]]\n[[player]]\ndirectory = "x"', "player 2: directory belongs to a program"),
        ('[[player]]\n[[player]]\nprogram = "x"\nHash = [1]', "player 2: Hash is a text, a number"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        from_toml(text)


def test_a_flag_s_first_key_may_have_no_value() -> None:
    config = from_flags("--player", "name=a", "--player", "name=b", "--resign", "two_sided,moves=3")
    assert config.adjudication.resign == ResignRule(moves=3, two_sided=True)
    with pytest.raises(SettingsError, match=r"\[sprt\]: .*'elo'; .*'elo[01]'"):
        from_flags("--player", "name=a", "--player", "name=b", "--sprt", "elo")


def test_the_number_of_processes_is_a_number_or_auto() -> None:
    assert from_toml(TWO).workers == from_toml('workers = "auto"\n' + TWO).workers == 0
    flags = ("--player", "nodes=1", "--player", "nodes=2", "--workers")
    assert from_flags(*flags, "auto").workers == 0
    assert from_flags(*flags, "3").workers == 3
    with pytest.raises(SettingsError, match=r"workers .*'many'"):
        from_flags(*flags, "many")
    assert differences(from_flags(*flags, "3").identity(), from_flags(*flags, "auto").identity()) == []

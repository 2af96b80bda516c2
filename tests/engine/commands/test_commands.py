# SPDX-License-Identifier: GPL-3.0-or-later
"""The subcommands, run as users run them."""

import csv
import gzip
import io
import json
import re
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import chess
import pytest
from rich.console import Console

from engine._core import Game
from engine.commands.analyse import _View
from engine.commands.bench import Measurement
from engine.search.report import Line, Report
from tests import programs
from tests.engine.evaluation.evaluators import shared_evaluator
from tests.paths import REPOSITORY
from tests.programs import ENGINE

pytestmark = pytest.mark.integration

START = chess.STARTING_FEN


def run(
    *arguments: str, input: str | bytes = "", status: int = 0, cwd: Path | None = None
) -> tuple[str, str]:
    text = input if isinstance(input, str) else input.decode(errors="surrogateescape")
    with shared_evaluator() if "random" in arguments else nullcontext():
        done = programs.command(*arguments, status=status, input=text, errors="surrogateescape", cwd=cwd)
    return done.stdout, done.stderr


def evaluate(lines: list[Any], *arguments: str, status: int = 0) -> list[dict[str, Any]]:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    output, _errors = run("evaluate", *arguments, input=text, status=status)
    return [json.loads(line) for line in output.splitlines()]


def test_answers_keep_the_order_and_bad_lines_their_place() -> None:
    lines = [
        {"fen": "startpos"},
        "not json",
        {"fen": "8/8/8/8/8/8/8/8 w - - 0 1"},
        {"fen": "startpos", "moves": ["e2e5"]},
        {"fen": "startpos", "moves": "e2e4"},
        {"fen": 3},
        {"fen": "startpos", "chess960": "yes"},
        {"fen": "startpos", "move": []},
        "[1, 2]",
        "",
        " " * (3 << 20),
        {"fen": "startpos", "moves": ["d2d4"]},
    ]
    answers = evaluate(lines, "--backend", "random", status=1)
    assert ["error" in answer for answer in answers] == [False, *[True] * 10, False]
    assert [answer.get("line") for answer in answers] == [None, *range(2, 12), None]
    assert "move 1" in answers[3]["error"] and "longer than" in answers[10]["error"]
    assert answers[0]["policy"] != answers[-1]["policy"]


def test_many_positions_come_back_in_order_whatever_the_batch() -> None:
    moves = ["e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6", "b5a4", "g8f6", "e1g1", "f8e7"]
    lines = [{"fen": "startpos", "moves": moves[: i % 11]} for i in range(500)]
    once = evaluate(lines[:11], "--backend", "random")
    for size in ("7", "256"):
        assert evaluate(lines, "--backend", "random", "--minibatch-size", size) == [
            once[i % 11] for i in range(500)
        ]


def test_evaluate_answers_as_analysis_does_with_nodes_0() -> None:
    moves = ["e2e4", "e7e5"]
    (answer,) = evaluate([{"moves": moves}], "--backend", "random")
    question = json.dumps({"id": "a", "moves": moves, "nodes": 0})
    output, _errors = run("analysis", "--backend", "random", input=question)
    assert answer.items() <= json.loads(output).items()


def test_evaluate_continues_a_file_and_replaces_if_it_may(tmp_path: Path) -> None:
    positions, table = tmp_path / "in.txt", tmp_path / "x.csv"
    positions.write_text("startpos\n4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1\n")
    table.write_text("mine\n")
    words = ("evaluate", str(positions), "--output", str(table), "--backend", "random")
    assert "--overwrite" in run(*words, status=1)[1]
    run(*words, "--overwrite")
    text = table.read_text()
    start, rooks = csv.DictReader(text.splitlines())
    assert start["fen"] == START and rooks["move"] == rooks["moves"].split()[0]
    (answer,) = evaluate([{"fen": rooks["fen"]}], "--backend", "random")
    assert answer["policy"][rooks["move"]] == float(rooks["share"]) == max(answer["policy"].values())
    answers = tmp_path / "x.jsonl"
    run("evaluate", str(positions), "--output", str(answers), "--backend", "random")
    for output in (table, answers):
        words = ("evaluate", str(positions), "--output", str(output), "--backend", "random")
        whole = output.read_text()
        output.write_text(whole[:-20])
        run(*words)
        assert output.read_text() == whole


def test_evaluate_without_an_evaluator_says_so_and_fails() -> None:
    output, errors = run("evaluate", "--backend", "imaginary", input='{"fen": "startpos"}\n', status=1)
    assert output == "" and errors.startswith("wavefront evaluate: ") and "imaginary" in errors
    assert "cannot read" in run("evaluate", "/nowhere.jsonl", status=1)[1]


def test_evaluate_reads_lines_among_comments_and_returns_their_ids() -> None:
    identities = ["a", 7, None, ["x", {"y": 1}], ""]
    lines: list[Any] = [
        "# comment",
        "",
        START,
        'rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - bm e4; id "first; move";',
        *({"id": identity} for identity in identities),
        "rubbish",
        *({"id": identity, "fen": "rubbish"} for identity in identities),
    ]
    answers = evaluate(lines, "--backend", "random", status=1)
    assert [answer.get("id") for answer in answers] == [None, "first; move", *identities, None, *identities]
    assert len({json.dumps(answer["policy"]) for answer in answers[:7]}) == 1
    assert answers[7]["line"] == 10


def test_evaluate_reads_every_position_of_a_pgn_file(tmp_path: Path) -> None:
    text = '[White "Müller"]\n\n1. e4 e5 (1... c5) 2. Nf3 *\n\n[White "B"]\n\n1. e5 *\n\n[White "C"]\n\n1. d4'
    path = tmp_path / "games.pgn"
    path.write_text(text, "utf-16")
    for words, data in ((str(path), b""), ("-", gzip.compress(text.encode("latin-1")))):
        output, errors = run("evaluate", words, "--backend", "random", input=data, status=1)
        answers = [json.loads(line) for line in output.splitlines()]
        assert [(answer["game"], answer.get("ply")) for answer in answers] == [
            *((1, ply) for ply in range(4)),
            *((2, 0), (2, None)),
            *((3, ply) for ply in range(2)),
        ]
        assert answers[1]["fen"].split()[0].endswith("/4P3/8/PPPP1PPP/RNBQKBNR")
        assert answers[5]["line"] == 5 and "error" in answers[5] and "1 of 8" in errors


def test_evaluate_needs_its_standard_input() -> None:
    done = programs.run("sh", "-c", 'exec "$@" <&-', "sh", *ENGINE, "evaluate", status=1)
    assert "standard input" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("where", ["--in-process", "--backend=random"])
def test_bench_prints_its_figures_as_json(where: str) -> None:
    output, _errors = run("bench", where, "--nodes", "500", "--batch", "32", "--json")
    result = json.loads(output)
    assert {"nodes_per_second", "evaluations_per_second", "mean_batch", "nodes", "seconds"} <= result.keys()
    assert result["nodes"] == 12 * 500
    assert 1 <= result["mean_batch"] <= 32


def test_one_position_does_not_decide_the_rate_of_a_bench() -> None:
    measurement = Measurement(0)
    for seconds in (1.0, 1.1, 0.001):
        measurement.add(Report(None, None, playouts=1000, evaluations=500, batches=10, seconds=seconds))
    summary = measurement.summary()
    assert (summary["nodes"], summary["positions"]) == (3000, 3)
    assert (summary["nodes_per_second"], summary["evaluations_per_second"]) == (1000, 500)


def test_bench_knows_several_batch_sizes_positions_and_a_time_limit() -> None:
    output, _errors = run(
        "bench", "--in-process", "--nodes", "100", "--batch", "8,64", "--fen", "startpos", "--json"
    )
    assert [(result["batch"], result["nodes"]) for result in json.loads(output)] == [(8, 100), (64, 100)]
    output, _errors = run("bench", "--in-process", "--nodes", "100", "--time-limit", "0.000001", "--json")
    assert json.loads(output)["positions"] == 1


def test_bench_shows_people_a_table() -> None:
    output, _errors = run("bench", "--in-process", "--nodes", "100")
    assert "nodes/s" in output and output.count("\n") > 15


def test_bench_counts_the_solved_positions_of_a_suite(tmp_path: Path) -> None:
    suite = tmp_path / "suite.epd"
    suite.write_text(
        '6k1/5ppp/8/8/8/8/8/K2R4 w - - bm Rd8#; id "mate";\n'
        "\n"
        "6k1/5ppp/8/8/8/8/8/K2R4 w - - am Rd8#;\n"
        "7k/8/8/8/8/8/1r6/K7 w - - bm Kxb2;\n"
    )
    output, _errors = run("bench", "--suite", str(suite), "--in-process", "--nodes", "2000", "--json")
    result = json.loads(output)
    assert result["positions"] == 3
    assert list(result["solved"]) == ["1", "100", "1000", "2000"]
    assert result["solved"]["2000"] == 2  # the mate and the only move, not what was to be avoided
    assert [each["name"] for each in result["results"]] == ["mate", "3", "4"]
    assert [each["moves"][-1] for each in result["results"]] == ["d1d8", "d1d8", "a1b2"]
    output, _errors = run("bench", "--suite", str(suite), "--in-process", "--nodes", "100")
    assert max(len(line) for line in output.splitlines()) <= 80
    assert output.splitlines()[0].split() == ["nodes", "1", "100"]
    assert "3 positions" in output


def test_suite_lines_are_named_when_they_are_no_positions(tmp_path: Path) -> None:
    suite = tmp_path / "suite.epd"
    suite.write_text("6k1/5ppp/8/8/8/8/8/K2R4 w - - bm Rd8;\n" + "rubbish\n" * 7)
    output, errors = run("bench", "--suite", str(suite), "--in-process", "--nodes", "1")
    assert "1 positions" in output and "7 lines left out" in output
    assert "line 2 is left out: " in errors and "line 6 is left out: " in errors
    assert errors.splitlines()[-1] == "wavefront bench: so are 2 more lines"
    output, _errors = run("bench", "--suite", str(suite), "--in-process", "--nodes", "1", "--json")
    assert list(json.loads(output)["left_out"]) == [str(number) for number in range(2, 9)]


def test_a_suite_that_is_not_searched_to_its_end_says_so(tmp_path: Path) -> None:
    suite = tmp_path / "suite.epd"
    suite.write_text(f'6k1/5ppp/8/8/8/8/8/K2R4 w - - bm Rd8; id "{"a long name " * 20}";\n' * 3000)
    limits = ("--time-limit", "0.5")
    output, _errors = run("bench", "--suite", str(suite), "--in-process", "--nodes", "100000", *limits)
    assert " of 3,000 positions" in output
    assert max(len(line) for line in output.splitlines()) <= 80


@pytest.mark.parametrize("moves", ["e4 e5 Nf3", "e2e4 E7E5 g1f3", "1. e4 e5 2.Nf3", "1.e4 1...e5 2. Nf3"])
def test_analyse_accepts_moves_as_people_write_them(moves: str) -> None:
    output, _errors = run("analyse", "--backend", "random", "--nodes", "5", "--moves", *moves.split())
    assert output.startswith("position rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq -")


@pytest.mark.parametrize("moves", [["e5"], ["Z0"], ["e4", "e4"], ["0000"], ["e4", "\x1b[31m"]])
def test_analyse_names_a_move_that_is_not_legal(moves: list[str]) -> None:
    _output, errors = run("analyse", "--backend", "random", "--nodes", "5", "--moves", *moves, status=1)
    assert "not a legal move" in errors and "\x1b" not in errors


def test_analyse_searches_the_end_of_a_game_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "game.pgn"
    path.write_text('[White "A"]\n\n1. d4 *\n\n[White "B"]\n\n1. e4 e5 (1... c5) 2. Nf3 *\n')
    command = ("analyse", str(path), "--backend", "random", "--nodes", "5")
    output, errors = run(*command)
    assert "2. Nf3" in errors and "B" in errors and "/5N2/" in output.splitlines()[0]
    output, errors = run(*command, "--game", "1", "--moves", "d5")
    assert "game 1 of 2" in errors and "/3p4/3P4/" in output.splitlines()[0]
    assert "from 1 to 2" in run(*command, "--game", "3", status=1)[1]
    path.write_text("nothing")
    assert "no games" in run(*command, status=1)[1]
    path.unlink()
    assert "game.pgn: No such file" in run(*command, status=1)[1]


def test_analyse_reports_a_missing_evaluator_once() -> None:
    _output, errors = run("analyse", "--evaluator", "tcp://127.0.0.1:9", "--nodes", "5", status=1)
    assert errors.count("tcp://127.0.0.1:9") == 1


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_analyse_leaves_room_for_lines_in_a_narrow_terminal(width: int) -> None:
    moves = ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6", "b5a4")
    line = Line(moves, 123_456, 0.1, (0.4, 0.3, 0.3), 60.0, 0.25)
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    console.print(_View(console, Game(), "a network")._table(Report("e2e4", None, lines=(line,))))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "1. e4 e5 2. Nf3" in shown
    assert ("123,456" in shown) == (width >= 80) and max(map(len, shown.splitlines())) <= width


@pytest.mark.parametrize(
    "position",
    [
        ["8/8/8/4k3/8/8/4P3/4K3 w - - 0 1"],
        ["8/8/8/4k3/8/8/4P3/4K3", "w", "-", "-", "0", "1"],
        ["--fen", "8/8/8/4k3/8/8/4P3/4K3 w - - 0 1"],
    ],
)
def test_analyse_takes_a_fen_as_people_type_it(position: list[str]) -> None:
    output, _errors = run("analyze", *position, "--nodes", "20", "--backend", "random")
    assert "position 8/8/8/4k3/8/8/4P3/4K3 w - - 0 1" in output
    assert sum(f" {number}. " in output for number in (1, 2, 3, 4)) == 3  # lines, if nobody says otherwise
    assert output.splitlines()[-1].startswith("best move ")


def test_options_may_be_given_by_their_uci_names() -> None:
    for flag in ("--ram-limit-mb", "--RamLimitMb", "--tree-memory"):
        _output, errors = run("bench", flag, "1", "--in-process", "--nodes", "1", status=2)
        assert "RamLimitMb is a whole number from 16" in errors


def test_an_evaluator_s_refusal_is_reported_once() -> None:
    for flag in ("--weights", "--network", "--WeightsFile"):
        _output, errors = run("analyse", flag, "/nowhere.pb", "--nodes", "1", status=1)
        assert errors.splitlines() == [
            "wavefront analyse: evaluator: /nowhere.pb: there is no such file; check the path"
        ]


@pytest.mark.parametrize("command", ["analyse", "bench", "match", "perft", "selfplay", "evaluate"])
def test_help_fits_a_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output, _errors = run(command, "--help")
    assert [line for line in output.splitlines() if len(line) > 80] == []
    assert output.count("\noptions:\n") == 1


def test_analyse_of_a_finished_game() -> None:
    output, _errors = run("analyse", "7k/6Q1/6K1/8/8/8/8/8 b - - 0 1", "--nodes", "10", "--backend", "random")
    assert "the game is over" in output


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["analyse", "rubbish"], 1, "analyse"),
        (["analyse", "--multipv", "0"], 2, "--multipv: MultiPV is a whole number from 1 to 500"),
        (["analyse", "--nodes", "0"], 2, "above 0"),
        (["bench", "--batch", "0"], 2, "batch"),
        (["bench", "--nodes", "x"], 2, "--nodes: 'x' is not a whole number above 0"),
        (["analyse", "startpos", "--fen", "startpos"], 2, "given twice"),
        (["selfplay"], 2, "nothing says what to play"),
        (["bench", "--fen", "rubbish", "--in-process"], 1, "bench"),
        (["nonsense"], 2, "nonsense"),
        (
            ["match", "--plyer", "x"],
            2,
            "match: error: unrecognized arguments: --plyer (did you mean --player?)",
        ),
        (["--weigths", "x.pb.gz"], 2, "unrecognized arguments: --weigths (did you mean --weights?)"),
        (["--nonsense"], 2, "unrecognized arguments: --nonsense (--help shows what there is)"),
        (["--backend", "random", "analyse"], 2, "--backend random: options of analyse are written behind it"),
        (["--cpuct", "3", "selfplay"], 2, "--cpuct 3: options of selfplay are written behind it"),
        (["--cpuct", "many"], 2, "--cpuct: CPuct is a number"),
        (["--config", "missing.toml"], 2, "missing.toml"),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], status: int, text: str) -> None:
    _output, errors = run(*arguments, status=status)
    assert text in errors


def test_help_and_version() -> None:
    output, _errors = run("--help")
    for command in ("analyse", "bench", "evaluate", "perft"):
        assert command in output
    assert "--weights" in output and "--cpuct-base" not in output
    assert "--cpuct-base" in run("--help-all")[0]
    assert run("--version")[0] == f"Wavefront {metadata.version('wavefront-chess')}\n"
    assert run("selfplay", "--help")[0].startswith("usage: wavefront selfplay [CONFIG.toml]")
    brief, whole = run("web", "--help")[0], run("web", "--help-all")[0]
    assert len(re.findall("^  --", brief, re.MULTILINE)) == 11 and "--max-queued" not in brief
    assert "--max-queued" in whole and "--book-file" in whole
    assert "did you mean --max-queued" in run("web", "--max-queud", "3", status=2)[1]


def test_output_that_the_terminal_cannot_show_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "KEY=VALUE,?" in programs.run(*ENGINE, "match", "--help").stdout


def test_options_prints_the_shipped_configuration() -> None:
    assert run("options")[0] == (REPOSITORY / "configs" / "engine.toml").read_text()


def test_options_may_come_from_a_file_under_uci(tmp_path: Path) -> None:
    config = tmp_path / "engine.toml"
    config.write_text('backend = "random"\nmultipv = 2\n')
    words = "position startpos\ngo nodes 50\n"
    done = programs.run(*ENGINE, "--config", config, input=words, cwd=tmp_path)
    assert " multipv 2 " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("bestmove ")

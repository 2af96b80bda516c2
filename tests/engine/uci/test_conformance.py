# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients rely on beyond the letter of the protocol (docs/reference/uci.md)."""

import os
import random
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.engine.uci.uci_process import (
    AFTER_E4,
    UciProcess,
    eventually,
    legal_moves,
    shared_engine,
    word_after,
)
from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

MATE_IN_ONE = "r1bqkbnr/pppp1ppp/2n5/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4"


def children(engine: UciProcess) -> list[psutil.Process]:
    return psutil.Process(engine.pid).children(recursive=True)


# -- before the evaluator is there ---------------------------------------------------------------------------


def test_early_search_says_a_sound_move_and_every_line_when_quit() -> None:
    with UciProcess("MultiPV 30") as engine:
        engine.send_bytes(b"position startpos\ngo nodes 200\nquit\n")
        status, rest = engine.wait()
        assert status == 0
        assert [int(word_after(line, "multipv")) for line in rest[-21:-1]] == list(range(1, 21))
        info, best = rest[-21], rest[-1]
        assert " score cp " in info and word_after(info, "nodes") == "0"
        assert best.split()[1] in ("e2e4", "d2d4") and word_after(info, "pv") == best.split()[1]


def test_quit_while_the_evaluator_starts_leaves_nothing_behind() -> None:
    with UciProcess() as engine:
        engine.send("isready")
        eventually(lambda: children(engine))
        started = children(engine)
        engine.send("quit")
        assert engine.wait()[0] == 0
        assert not any(process.is_running() for process in started)


def test_the_evaluator_is_started_before_anybody_asks_for_it() -> None:
    with UciProcess() as engine:
        engine.ask("uci", "uciok")
        eventually(lambda: children(engine))
        assert engine.sync() == []
        assert len(children(engine)) == 1


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("WeightsFile /nowhere/at all.pb.gz", "/nowhere/at all.pb.gz: there is no such file"),
        ("Backend warp", "there is no backend 'warp'"),
    ],
)
def test_a_network_or_backend_that_cannot_be_had_ends_the_engine(option: str, reason: str) -> None:
    with UciProcess(option) as engine:
        assert any(reason in line for line in engine.sync())
        engine.send("position startpos")
        engine.send("go wtime 60000 btime 60000")
        status, rest = engine.wait()
        assert status == 1
        assert reason in rest[-1] and rest[-1].startswith("info string error")
        assert reason in engine.errors.decode()


# -- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "go",
    ["movetime abc", "wtime abc btime 1000", "btime 1000", "nodes 0", "depth 0", "perft 3", "blah", "winc 5"],
)
def test_a_limit_that_makes_no_sense_is_reported_and_ends_the_search(go: str) -> None:
    with shared_engine() as engine:
        engine.send("position startpos")
        lines = engine.ask(f"go {go}", "bestmove")
        assert lines[0].startswith("info string error: ")


@pytest.mark.parametrize("go", ["movetime 1", "wtime 30 btime 30", "nodes 1", "depth 1"])
def test_a_score_comes_before_every_best_move(go: str) -> None:
    with shared_engine() as engine:
        engine.sync()
        for moves in ("", " moves e2e4", " moves e2e4 e7e5"):
            engine.send(f"position startpos{moves}")
            info, best = engine.ask(f"go {go}", "bestmove")[-2:]
            assert " score " in info and word_after(info, "pv") == best.split()[1]


# -- spelling ------------------------------------------------------------------------------------------------


def test_commands_are_understood_in_any_case_and_after_unknown_words() -> None:
    with shared_engine() as engine:
        engine.ask("UCI", "uciok")
        engine.send("POSITION STARTPOS Moves e2e4")
        engine.send("joho debug on")
        lines = engine.ask("GO NODES 10", "bestmove")
        assert any(line.startswith("info string evaluations") for line in lines)  # what debug adds
        assert lines[-1].split()[1] in legal_moves(AFTER_E4)


@pytest.mark.parametrize(("chess960", "castling"), [("false", "e1g1"), ("true", "e1h1")])
def test_castling_and_promotions_may_be_written_either_way(chess960: str, castling: str) -> None:
    with shared_engine(f"UCI_Chess960 {chess960}") as engine:
        for spelling, move in (("e1g1", castling), ("e1h1", castling), ("h7h8Q", "h7h8q")):
            engine.send("position fen 2k5/7P/8/8/8/8/8/4K2R w K - 0 1")
            lines = engine.ask(f"go nodes 5 searchmoves {spelling}", "bestmove")
            assert not any(line.startswith("info string error") for line in lines)
            assert lines[-1].split()[1] == move
            engine.send(f"position fen 2k5/7P/8/8/8/8/8/4K2R w K - 0 1 moves {spelling}")
            assert engine.sync() == []


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_people_at_a_terminal_are_reported_what_this_is() -> None:
    import pty

    terminal, end = pty.openpty()
    try:
        os.write(terminal, b"quit\n")
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / "run_engine.py")], stdin=end, capture_output=True, timeout=60
        )
    finally:
        os.close(terminal)
        os.close(end)
    assert done.returncode == 0 and done.stdout == b""
    assert b"UCI" in done.stderr and b"wavefront analyse" in done.stderr and b"help" in done.stderr


# -- what is shown -------------------------------------------------------------------------------------------


def test_statistics_have_the_layout_that_guis_read() -> None:
    with shared_engine("VerboseMoveStats true", "SmartPruningFactor 0", "BatchesInFlight 1") as engine:
        engine.send("position startpos")
        lines = engine.ask("go nodes 10", "bestmove")
        moves = [line.removeprefix("info string ") for line in lines if "(P:" in line]
        assert moves[-1].startswith("node ")
        assert word_after(moves[-1], "N:") == word_after(lines[-2], "nodes")
        names = ["N:", "(P:", "(WL:", "(D:", "(M:", "(Q:", "(U:", "(S:", "(V:"]
        for line in moves[:-1]:
            assert [word for word in line.split() if word.endswith(":")] == names
            assert line.split()[0] in legal_moves()
        assert all(("(WL:  -.-----)" in line) == (word_after(line, "N:") == "0") for line in moves)
        visits = [int(word_after(line, "N:")) for line in moves[:-1]]
        assert visits == sorted(visits)


def test_counters_for_each_line_and_evaluations_per_second() -> None:
    options = ("MultiPV 3", "PerPVCounters true", "UCI_ShowEPS true", "SmartPruningFactor 0")
    with shared_engine(*options, "ValueChoiceShare 1") as engine:
        engine.send("position startpos")
        last = engine.ask("go nodes 500", "bestmove")[-4:-1]
        nodes = [int(word_after(line, "nodes")) for line in last]
        assert nodes == sorted(nodes, reverse=True)
        assert sum(nodes) < 500
        assert all(int(word_after(line, "eps")) > 0 for line in last)


def test_nodes_are_visits_and_nps_those_of_this_search() -> None:
    with shared_engine("SmartPruningFactor 0", "UCI_ShowEPS true", "LookAhead 0") as engine:
        engine.send("position startpos")
        first, second = (engine.ask(f"go nodes {nodes}", "bestmove")[-2] for nodes in (2000, 6000))
        for line, playouts in ((first, 2000), (second, 4000)):
            seconds = int(word_after(line, "time")) / 1000
            assert int(word_after(line, "nps")) * seconds == pytest.approx(playouts, rel=0.1)
            assert 0 < int(word_after(line, "eps")) <= int(word_after(line, "nps"))
        kept = engine.ask("go nodes 1000", "bestmove")[-2]
        assert (word_after(kept, "nodes"), word_after(kept, "nps")) == ("6000", "0")


def test_visits_that_need_no_network_are_nodes_but_no_evaluations() -> None:
    options = ("SmartPruningFactor 0", "UCI_ShowEPS true", "StickyEndgames false", "LookAhead 0")
    with shared_engine(*options) as engine:
        engine.send("position fen k7/8/8/8/8/8/8/KR6 w - - 97 80")
        last = engine.ask("go nodes 3000", "bestmove")[-2]
        assert int(word_after(last, "nodes")) >= 3000
        assert 0 < 5 * int(word_after(last, "eps")) < int(word_after(last, "nps"))


@pytest.mark.parametrize(("limit", "mate"), [("depth 2", False), ("depth 40", True), ("nodes 100000", True)])
def test_a_proof_ends_a_search_by_depth_or_nodes(limit: str, mate: bool) -> None:
    with shared_engine() as engine:
        engine.send("position fen 7k/8/5K2/6Q1/8/8/8/8 b - - 0 1")
        last = engine.ask(f"go {limit}", "bestmove")[-2]
        assert (" score mate -" in last) == mate
        assert int(word_after(last, "nodes")) < 20_000


@pytest.mark.parametrize("verbose", ["false", "true"])
def test_live_statistics_go_to_the_log_or_with_the_others_to_the_gui(tmp_path: Path, verbose: str) -> None:
    log = tmp_path / "a log.txt"
    with UciProcess(f'LogFile "{log}"', "LogLiveStats true", f"VerboseMoveStats {verbose}") as engine:
        engine.send("go infinite")
        engine.until("info depth")
        heard = engine.ask("stop", "bestmove")
        assert any("(P:" in line for line in [*engine.heard, *heard]) == (verbose == "true")
    assert "(P:" in log.read_text() and "> stop" in log.read_text()


# -- anything ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_commands_gets_one_best_move_for_each_go(seed: int) -> None:
    chance = random.Random(seed)
    positions = [
        "startpos",
        "startpos moves e2e4 e7e5 g1f3",
        f"fen {MATE_IN_ONE}",
        "fen 7k/5Q2/6K1/8/8/8/8/8 b - - 0 1",
        "fen 8/P6k/8/8/8/8/8/K7 w - - 98 70",
    ]
    limits = [
        "nodes 30", "depth 2", "movetime 5", "infinite", "wtime 80 btime 80 winc 1", "mate 2", "",
        "nodes 50 searchmoves a2a3 e2e4 a7a8q", "ponder nodes 9", "ponder wtime 50 btime 50", "movetime x",
    ]  # fmt: skip
    settings = ["MultiPV value 3", "UCI_Chess960 value true", "VerboseMoveStats value true", "ClearTree",
                "MultiPV value 1", "UCI_ShowWDL value true", "ScoreType value WDL_mu"]  # fmt: skip
    kinds = ["go", "go", "position", "stop", "isready", "setoption", "ucinewgame", "hit", "noise", "bytes"]
    noise = ["position", "startpos", "moves", "fen", "setoption", "name", "value", "nodes", "1", "-7", "stop",
             "e2e4", "debug", "searchmoves", "MultiPV", "\x00", "8/8"]  # fmt: skip
    with shared_engine() as engine:
        searches = 0
        for _command in range(200):
            kind = chance.choice(kinds)
            if kind == "go":
                searches += 1
                engine.send(f"go {chance.choice(limits)}")
            elif kind == "position":
                engine.send(f"position {chance.choice(positions)}")
            elif kind == "setoption":
                engine.send(f"setoption name {chance.choice(settings)}")
            elif kind == "noise":  # no `go`, each of which has an answer
                engine.send(" ".join(chance.choices(noise, k=chance.randrange(1, 9))))
            elif kind == "bytes":
                engine.send_bytes(chance.randbytes(chance.randrange(40)) + b"\n")
            else:
                engine.send("ponderhit" if kind == "hit" else kind)
        engine.send("position startpos")
        last = engine.ask("go nodes 5", "bestmove")
        while sum(line.startswith("bestmove") for line in engine.heard) <= searches:
            last = engine.until("bestmove")
        assert last[-1].split()[1] in legal_moves()
        assert not any(line.startswith("bestmove") for line in engine.sync())

# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts and marks of `wavefront review` against Stockfish, on games that nothing was chosen on.

python -m benchmarks.strength.review_marks --depth normal
python -m benchmarks.strength.review_marks --known
python -m benchmarks.strength.review_marks --make games.pgn
python -m benchmarks.strength.review_marks --judge games.pgn --judged judged.jsonl --cores 8

The first command reviews the quoted half of the judged games (GAMES, checked by DIGEST) and prints the
figures with Wilson intervals of 95 %. The games begin alike, so a move counts once, and not at all if the
half on which thresholds are chosen has it. Flags after `--` go to `wavefront review`, such as
`--backend gpu`. A stopped run resumes in the folder of --output. --known reviews ten games of which the world
knows the losing move (KNOWN); the exit status is 1 if a review names another one. It may name none.

GAMES are those of MANIFEST, of 480 the 368 that were not lost on time. The judge is Debian's Stockfish 15.1,
table cleared, with its own win, draw and loss, before and after each move: NODES, or MORE_NODES.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import chess
import chess.engine
import chess.pgn

from benchmarks.common.figures import wilson
from benchmarks.common.installation import RUN_ENGINE
from engine.apps.review.judging import SERIOUS, decisive

GAMES = Path(__file__).with_suffix(".jsonl.xz")
DIGEST = "db81e96a7c1aeb368bf3569982dbf5eabf01a9dc691f8267a57df69fa34d80ca"

KNOWN = Path(__file__).with_name("known_games.pgn")
"""Famous games. LostWith: the move with which the world says that they were lost."""

NODES, MORE_NODES = 300_000, 1_000_000
SETTLED = 0.05
"""Most change of an expected score from a third of NODES to all, or MORE_NODES decide."""

REAL, BLUNDER = 0.05, 0.2
"""Loss by the judge from which a mark is right, and from which a move has to be marked."""

NEAR = 2
"""Plies between two verdicts on the move that lost, at most: one move."""

MANIFEST = (
    *(
        f"--player=name=level-{elo},weights=wavefront-cpu,limit_strength=true,elo={elo},{limit}"
        for elo, limit in (
            (900, "tc=5+0.1"),
            (1200, "nodes=400"),
            (1500, "tc=5+0.1"),
            (1800, "nodes=400"),
            (2100, "tc=5+0.1"),
            (2400, "nodes=400"),
        )
    ),
    *(
        f"--player=name=stockfish-{elo},program=stockfish,UCI_LimitStrength=true,UCI_Elo={elo},{limit}"
        for elo, limit in (
            (1350, "nodes=30000"),
            (1700, "tc=5+0.1"),
            (2100, "nodes=30000"),
            (2500, "tc=5+0.1"),
        )
    ),
    *(
        f"--player=name=maia-{rating},weights=maia-{rating}.pb.gz,nodes=1,temperature=0.5"
        for rating in (1100, 1300, 1500, 1700, 1900, 2200)
    ),
    *("--games", "4", "--no-pairs", "--seed", "83", "--resign", "score=900,moves=4", "--max-moves", "110"),
    *("--concurrency", "6"),
)
"""Arguments of `wavefront match`, in the folder of the Maia networks."""


class Judged(NamedTuple):
    """A game and White's expected score by the judge, at the start and after each move."""

    name: str
    result: str
    moves: list[str]
    expected: list[float]

    @property
    def half(self) -> int:
        """0: thresholds are chosen on it. 1: figures are quoted on it."""
        return zlib.crc32(self.name.encode()) % 2

    @classmethod
    def of(cls, data: dict[str, Any]) -> Judged:
        expected = []
        board = chess.Board()
        moves = data["moves"].split()
        for ply, judged in enumerate(data["judged"].split()):
            if judged == "-":
                value = 0.0 if board.is_checkmate() else 0.5
            else:
                win, loss = map(int, judged.split(","))
                value = (1000 + win - loss) / 2000
            expected.append(value if board.turn else 1 - value)
            if ply < len(moves):
                board.push_uci(moves[ply])
        return cls(data["id"], data["result"], moves, expected)

    def played(self) -> list[str]:
        """Return each move with the position before it."""
        board, found = chess.Board(), []
        for move in self.moves:
            found.append(f"{board.fen()} {move}")
            board.push_uci(move)
        return found

    def pgn(self) -> str:
        game = chess.pgn.Game({"White": self.name, "Result": self.result})
        game.add_line(map(chess.Move.from_uci, self.moves))
        return f"{game}\n\n"


class Figures(NamedTuple):
    """Counts of a reviewed game. named: the review names a losing move. right: within NEAR of the judge's."""

    decided: int = 0
    named: int = 0
    right: int = 0
    marks: int = 0
    real: int = 0
    blunders: int = 0
    found: int = 0


def judged_games() -> list[Judged]:
    text = lzma.decompress(GAMES.read_bytes())
    if hashlib.sha256(text).hexdigest() != DIGEST:
        raise SystemExit(f"{GAMES} is not the file of the figures: its digest differs")
    return [Judged.of(json.loads(line)) for line in text.splitlines()]


def compared(game: Judged, review: dict[str, Any], seen: set[str]) -> Figures:
    """Compare a review with the judge. seen: moves that do not count; those of the game are added."""
    lost = decisive(game.expected, game.result, white_begins=True)
    named = review["decisive"]
    decided = int(lost is not None)
    counts = Figures(
        decided,
        int(decided and named is not None),
        int(lost is not None and named is not None and abs(named - lost) <= NEAR),
    )
    for ply, (played, move) in enumerate(zip(game.played(), review["moves"], strict=True)):
        if played in seen:
            continue
        seen.add(played)
        loss = (game.expected[ply] - game.expected[ply + 1]) * (1 if move["white"] else -1)
        mark = move["mark"] in SERIOUS
        blunder = loss >= BLUNDER
        values = mark, mark and loss >= REAL, blunder, blunder and mark
        counts = Figures(*counts[:3], *(a + b for a, b in zip(counts[3:], values, strict=True)))
    return counts


def shown(name: str, successes: int, trials: int) -> str:
    low, high = wilson(successes, trials)
    return f"{name}: {successes} of {trials}, {successes / max(1, trials):.1%} ({low:.1%} to {high:.1%})"


def report(games: Sequence[tuple[Judged, dict[str, Any]]], seen: set[str]) -> str:
    total = Figures(*map(sum, zip(*(compared(*each, seen) for each in games), strict=True)))
    return "\n".join(
        (
            f"{len(games)} games, {total.decided} decided",
            shown("lost with, of verdicts", total.right, total.named),
            shown("lost with, of decided games", total.right, total.decided),
            shown("marks ? and ?? that lose 5 %", total.real, total.marks),
            shown("blunders of 20 % that are marked", total.found, total.blunders),
        )
    )


def reviewed(pgn: str, folder: Path, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Review games by the command, in their order."""
    file = folder / "judged.pgn"
    file.write_text(pgn, "utf-8")
    command = [*RUN_ENGINE, "review", str(file), "--output", str(folder / "review")]
    subprocess.run([*command, *arguments], check=True)
    lines = (folder / "review" / "review.jsonl").read_text("utf-8").splitlines()
    reviews = [entry["review"] for entry in map(json.loads, lines) if "review" in entry]
    return sorted(reviews, key=lambda review: review["number"])


def known(reviews: Sequence[dict[str, Any]]) -> int:
    """Print the verdicts of reviews of KNOWN and the world's. Return how many name another move."""
    others = 0
    for review in reviews:
        headers = review["headers"]
        lost = [move for move in review["moves"] if move["ply"] == review["decisive"]]
        named = "".join(f"{each['number']}{'.' if each['white'] else '...'} {each['san']}" for each in lost)
        others += named not in ("", headers["LostWith"])
        players = f"{headers['White']} - {headers['Black']}"
        print(f"{players}: {named or 'unclear'} (the world: {headers['LostWith']})")
    return others


def judge(path: Path, output: Path, program: str, cores: int) -> None:
    """Append the games of a PGN file with the judge's values to a file, a line of JSON each, but those that
    are there or were lost on time."""
    there = (
        {json.loads(line)["id"] for line in output.read_text("utf-8").splitlines()} if output.exists() else ()
    )
    games = []
    with path.open(encoding="utf-8") as stream:
        while (game := chess.pgn.read_game(stream)) is not None:
            if name_of(game) not in there and game.headers.get("Termination") != "time forfeit":
                games.append(game)
    lock = threading.Lock()

    def work(game: chess.pgn.Game) -> None:
        with chess.engine.SimpleEngine.popen_uci(program) as engine:
            engine.configure({"UCI_ShowWDL": True, "Hash": 64})
            boards = [game.board(), *(node.board() for node in game.mainline())]
            data = {
                "id": name_of(game),
                "result": game.headers["Result"],
                "moves": " ".join(move.uci() for move in game.mainline_moves()),
                "judged": " ".join(value_of(engine, board) for board in boards),
            }
        with lock, output.open("a", encoding="utf-8") as file:
            print(json.dumps(data), file=file, flush=True)

    with ThreadPoolExecutor(cores) as pool:
        for done in [pool.submit(work, game) for game in games]:
            done.result()


def name_of(game: chess.pgn.Game) -> str:
    return f"{game.headers['White']} {game.headers['Black']} {game.headers['Round']}"


def value_of(engine: chess.engine.SimpleEngine, board: chess.Board) -> str:
    """Return win and loss of the side to move in thousandths, or `-` if the game is over."""
    if board.is_game_over():
        return "-"
    last: chess.engine.Wdl | None = None
    for nodes in (NODES, MORE_NODES):
        early = None
        # Each position is a game of its own: Stockfish clears its table.
        with engine.analysis(board, chess.engine.Limit(nodes=nodes), game=object()) as analysis:
            for info in analysis:
                if "wdl" in info:
                    last = info["wdl"].relative
                    early = last if info.get("nodes", 0) <= nodes // 3 else early
        if early and last and abs(early.expectation() - last.expectation()) <= SETTLED:
            break
    assert last is not None
    return f"{last.wins},{last.losses}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depth", default="normal", help="of the review (default: %(default)s)")
    parser.add_argument("--half", type=int, choices=(0, 1), default=1, help="0: the half to choose on")
    parser.add_argument("--games", type=int, metavar="N", help="only the first N games of the half")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="keeps the review, to resume it")
    parser.add_argument("--known", action="store_true", help="review the games of KNOWN and end")
    parser.add_argument("--make", metavar="FILE.pgn", help="make games by the manifest and end")
    parser.add_argument("--judge", type=Path, metavar="FILE.pgn", help="judge games and end")
    parser.add_argument(
        "--judged", type=Path, default=Path("judged.jsonl"), metavar="FILE", help="of the judge"
    )
    parser.add_argument("--stockfish", default="/usr/games/stockfish", metavar="PROGRAM")
    parser.add_argument("--cores", type=int, default=1, help="of the judge (default: %(default)s)")
    parser.add_argument("review", nargs="*", metavar="FLAG", help="flags of wavefront review, after --")
    arguments = parser.parse_args()
    if arguments.make:
        output = arguments.make.removesuffix(".pgn")
        command = [*RUN_ENGINE, "match", *MANIFEST, "--output", output]
        return subprocess.run(command, check=False).returncode
    if arguments.judge:
        judge(arguments.judge, arguments.judged, arguments.stockfish, arguments.cores)
        return 0
    judged = judged_games()
    games = [game for game in judged if game.half == arguments.half][: arguments.games]
    pgn = KNOWN.read_text("utf-8") if arguments.known else "".join(game.pgn() for game in games)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        reviews = reviewed(pgn, folder, ["--depth", arguments.depth, *arguments.review])
        if arguments.known:
            return int(known(reviews) > 0)
        chosen_on = {played for game in judged if game.half < arguments.half for played in game.played()}
        print(report(list(zip(games, reviews, strict=True)), chosen_on))
    return 0


if __name__ == "__main__":
    sys.exit(main())

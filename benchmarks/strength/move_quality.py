"""How good the moves are that engines play in the same positions with the same time: cheaper than games.

    python -m benchmarks.strength.move_quality search FOLDER --pgn GAMES.pgn --player KEY=VALUE,… [--player …]
                                      [--movetime MS | --nodes N] [--side SIDE] [--seconds S] [--games N]
    python -m benchmarks.strength.move_quality judge FOLDER --judge PROGRAM [--nodes N] [--processes N]
    python -m benchmarks.strength.move_quality show FOLDER [--players NAME,NAME,…] [--json]

search: each player follows the moves of played games from after the book, so that its tree is reused as in
play, and searches every position of one side. Players take turns game by game, one thinks at a time. They
are written as for `match --player`, each with a name; SmartPruningFactor is 0 where an engine has it, unless
it is given.

judge: a UCI engine values the distinct moves where players differ, each with an empty hash. The loss of a
move is the winning probability of the best of the players' moves, less its own: 1 / (1 + exp(-cp / 150)) of
the judge's centipawns, a scale of our own choice. Positions that a search of a tenth of the nodes values
beyond 350 centipawns before the move are decided, and left out.

FOLDER keeps all that was searched and judged. The same command goes on after an interruption. A later
`search`, which needs no PGN, has another player search the same positions, to be compared with those before:
let it be on the same machine, if what is the same is the time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import chess

from benchmarks.common.command_line import FAILED, INTERRUPTED, count, positive
from benchmarks.common.installation import REPOSITORY
from benchmarks.strength.kept_moves import (
    KeptError,
    judgements_in,
    kept_judgements,
    kept_searches,
    open_judgements,
    open_searches,
    positions_of,
)
from benchmarks.strength.move_losses import Question, differences, qualities, questions, table
from benchmarks.strength.replayed_games import GamesError, ReplayedGame, Selection
from engine.commands.match import player_table
from engine.games.journal import Journal, JournalError
from engine.match.config import PlayerConfig, UciValue
from engine.match.configfile import player_config
from engine.match.players.player import Clocks, ForfeitError, PlayerError, Position, Thought
from engine.match.players.program import ProgramPlayer
from engine.match.timecontrol import GameClock, TimeControl
from engine.options import OPTIONS, Options
from engine.settings.tables import Table
from engine.workers.executor import play_together
from protocol.host.processes import run_interruptible
from protocol.settings.spec import SettingsError

PLAYER_OPTIONS: Mapping[str, UciValue] = {"SmartPruningFactor": "0"}
"""Set where a player has them, unless they were given: all is to be searched that there is time for."""

JUDGE_OPTIONS: Mapping[str, UciValue] = {"Threads": 1, "Hash": 64}

DECIDING_SHARE = 10
"""A position before the move is judged with so much fewer nodes than a move."""

MATE_CP = 10_000

STALL_SECONDS = 600.0
"""How long an engine may take for a move, whatever its limit."""


# -- players -------------------------------------------------------------------------------------------------


def player_of(text: str, limit: TimeControl) -> PlayerConfig:
    """The program that `key=value,key=value` stands for; this engine is one, too. Raises SettingsError."""
    source = f"--player {text}"
    given = player_table(text)
    config = player_config(Table(source, given), limit, Options())
    if not config.name:
        raise SettingsError(f"{source}: give it a name, name=…, by which its moves are kept")
    if config.time.base_ms is not None or config.time == TimeControl():
        raise SettingsError(f"{source}: positions are searched with movetime, nodes or depth")
    if config.is_program:
        return config
    options = {
        option.title: option.text(getattr(config.options, option.name))
        for option in OPTIONS
        if option.name in given
    }
    return replace(config, command=(sys.executable, str(REPOSITORY / "run_engine.py")), uci_options=options)


def identity_of(config: PlayerConfig) -> dict[str, Any]:
    """What a player's moves depend on, as JSON data."""
    return {
        "command": list(config.command),
        "options": {name: str(value) for name, value in config.uci_options.items()},
        "limit": str(config.time),
    }


async def thought(player: ProgramPlayer, position: Position) -> Thought:
    """What it answers, with a legal move. Raises PlayerError."""
    clock = GameClock(player.config.time)
    try:
        answer = await player.think(position, Clocks(clock, clock), patience_seconds=STALL_SECONDS)
    except ForfeitError as error:
        raise PlayerError(f"{player.config.name}: {str(error) or error.reason}") from None
    board = position.board
    try:
        move = board.parse_uci(answer.move or "")
    except ValueError:
        move = chess.Move.null()
    if not move:
        raise PlayerError(f"{player.config.name} plays {answer.move}, which is not legal, in {board.fen()}")
    return replace(answer, move=board.uci(move))


async def new_game(player: ProgramPlayer) -> None:
    try:
        await player.new_game()
    except ForfeitError as error:
        raise PlayerError(f"{player.config.name}: {str(error) or error.reason}") from None


# -- search --------------------------------------------------------------------------------------------------


async def search(arguments: argparse.Namespace) -> None:
    limit = TimeControl(movetime_ms=arguments.movetime, nodes=arguments.nodes)
    configs = [player_of(text, limit) for text in arguments.player]
    names = [config.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"two players are called {name!r}: give them different names")
    selection = Selection(arguments.side, arguments.book, arguments.last, arguments.seed)
    positions = positions_of(arguments.folder, arguments.pgn, selection)
    with open_searches(arguments.folder, positions) as journal:
        known = {entry["player"]: entry["identity"] for entry in journal.entries if "identity" in entry}
        for config in configs:
            if known.get(config.name, identity_of(config)) != identity_of(config):
                raise KeptError(
                    f"{config.name} was searched before as {json.dumps(known[config.name])}: give this one "
                    "another name"
                )
        done = {(entry["player"], entry["game"]) for entry in journal.entries if "game" in entry}
        await search_games(configs, positions.games[: arguments.games], journal, done, arguments.seconds)


async def search_games(
    configs: Sequence[PlayerConfig],
    games: Sequence[ReplayedGame],
    journal: Journal,
    done: set[tuple[str, int]],
    seconds: float | None,
) -> None:
    """Search what is not done yet. seconds: no game is begun after that."""
    players = [ProgramPlayer(config, preferred=PLAYER_OPTIONS) for config in configs]
    named = {entry["player"] for entry in journal.entries}
    try:
        for player in players:
            await player.start()
            await thought(player, Position(chess.Board()))  # The first search of a process costs more.
            if player.config.name not in named:
                journal.append({"player": player.config.name, "identity": identity_of(player.config)})
        began = time.monotonic()
        for number, game in enumerate(games, 1):
            missing = [player for player in players if (player.config.name, game.number) not in done]
            if missing and seconds is not None and time.monotonic() - began > seconds:
                log(f"{number - 1} of {len(games)} games are searched; the same command goes on")
                return
            for player in missing:
                searched = await replayed(player, game)
                journal.append({"player": player.config.name, "game": game.number, "searched": searched})
            if missing:
                log(f"game {number} of {len(games)}: {len(game.plies)} positions")
    finally:
        for player in players:
            await player.close()


async def replayed(player: ProgramPlayer, game: ReplayedGame) -> list[list[Any]]:
    """[ply, move, nodes, milliseconds] of each position of a game. Raises PlayerError."""
    await new_game(player)
    searched: list[list[Any]] = []
    for ply, board in game.boards():
        answer = await thought(player, Position(board))
        searched.append([ply, answer.move, answer.nodes, round(1000 * answer.seconds, 1)])
    return searched


# -- judge ---------------------------------------------------------------------------------------------------


async def judge(arguments: argparse.Namespace) -> None:
    nodes = arguments.nodes
    config = player_config(
        Table("--judge", player_table(arguments.judge)), TimeControl(nodes=nodes), Options()
    )
    if not config.is_program:
        raise SettingsError(f"--judge {arguments.judge}: name a program")
    config = replace(config, name=config.name or "the judge")
    before = replace(config, time=TimeControl(nodes=max(1, nodes // DECIDING_SHARE)))
    positions, searches = kept_searches(arguments.folder)
    games = {game.number: game for game in positions.games}
    with open_judgements(arguments.folder, positions, identity_of(config)) as journal:
        known = judgements_in(journal)
        while asked := questions(searches, known):
            deciding = asked[0][2] == ""
            asked = [question for question in asked if (question[2] == "") == deciding]
            log(f"{len(asked)} {'positions' if deciding else 'moves'} to judge")
            remaining = iter(asked)
            processes = min(arguments.processes, len(asked))
            await play_together(
                judge_some(before if deciding else config, games, remaining, known, journal)
                for _ in range(processes)
            )


async def judge_some(
    config: PlayerConfig,
    games: Mapping[int, ReplayedGame],
    remaining: Iterator[Question],
    known: dict[Question, int],
    journal: Journal,
) -> None:
    """One process, which takes from what remains as long as there is something. Raises PlayerError."""
    player = ProgramPlayer(config, preferred=JUDGE_OPTIONS)
    try:
        await player.start()
        for game, ply, move in remaining:
            cp = await judgement(player, board_after(games[game], ply, move))
            known[game, ply, move] = -cp if move else cp
            journal.append({"game": game, "ply": ply, "move": move, "cp": known[game, ply, move]})
            if len(known) % 100 == 0:
                log(f"{len(known)} judged")
    finally:
        await player.close()


def board_after(game: ReplayedGame, ply: int, move: str) -> chess.Board:
    """The position before a ply, or after a move in it, with all moves of the game on its stack."""
    board = next(board for at, board in game.boards() if at == ply)
    if move:
        board.push_uci(move)
    return board


async def judgement(player: ProgramPlayer, board: chess.Board) -> int:
    """Centipawns for the side to move. Raises PlayerError."""
    if board.is_checkmate():
        return -MATE_CP
    drawn = (board.is_stalemate(), board.is_insufficient_material(), board.is_repetition(3))
    if any(drawn) or board.halfmove_clock >= 100:
        return 0
    await new_game(player)
    answer = await thought(player, Position(board))
    if answer.mate is not None:
        return MATE_CP if answer.mate > 0 else -MATE_CP
    if answer.score_cp is None:
        raise PlayerError(f"{player.config.name} says no score in {board.fen()}")
    return max(-MATE_CP, min(MATE_CP, answer.score_cp))


# -- show ----------------------------------------------------------------------------------------------------


def show(arguments: argparse.Namespace) -> None:
    positions, searches = kept_searches(arguments.folder)
    judgements = kept_judgements(arguments.folder, positions)
    names = arguments.players.split(",") if arguments.players else list(searches)
    for name in names:
        if name not in searches:
            raise SettingsError(
                f"there is no player {name!r} in {arguments.folder}, but {', '.join(searches)}"
            )
    chosen = {name: searches[name] for name in names}
    found, pairs = qualities(chosen, judgements), differences(chosen, judgements)
    left = len(questions(chosen, judgements))
    if arguments.json:
        parts = {"players": [asdict(each) for each in found], "pairs": [asdict(each) for each in pairs]}
        print(json.dumps({**parts, "not_judged": left}))
        return
    print(table(found, pairs))
    if left:
        print(f"\n{left} positions and moves are not judged yet: what is shown is not complete, run judge")


# -- the command ---------------------------------------------------------------------------------------------


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="search | judge | show")
    part = commands.add_parser("search", help="have players search the positions of games")
    part.add_argument("folder", type=Path, metavar="FOLDER", help="where all is kept")
    part.add_argument("--pgn", type=Path, metavar="GAMES.pgn", help="needed the first time")
    part.add_argument("--player", action="append", required=True, metavar="KEY=VALUE,…", help="one more")
    part.add_argument("--movetime", type=count, metavar="MS", help="of players without their own limit")
    part.add_argument("--nodes", type=count, metavar="N", help="of players without their own limit")
    part.add_argument("--side", choices=("random", "white", "black"), default="random", help="(random)")
    part.add_argument("--book", type=int, default=0, metavar="PLIES", help="left out if not marked so (0)")
    part.add_argument("--last", type=count, default=100, metavar="PLY", help="last ply searched (100)")
    part.add_argument("--seed", type=int, default=1, help="of the sides and the order of games (1)")
    part.add_argument("--games", type=count, metavar="N", help="how many of the games (all)")
    part.add_argument("--seconds", type=positive, help="begin no game after that (no limit)")
    part = commands.add_parser("judge", help="have moves valued where players differ")
    part.add_argument("folder", type=Path, metavar="FOLDER")
    part.add_argument("--judge", required=True, metavar="PROGRAM", help="or program=…,Hash=64")
    part.add_argument("--nodes", type=count, default=150_000, metavar="N", help="of each move (150000)")
    part.add_argument("--processes", type=count, default=1, metavar="N", help="judges at once (1)")
    part = commands.add_parser("show", help="print the comparison")
    part.add_argument("folder", type=Path, metavar="FOLDER")
    part.add_argument("--players", metavar="NAME,NAME,…", help="some of them (default: all)")
    part.add_argument("--json", action="store_true", help="print both tables as JSON")
    return parser.parse_args(words)


def main() -> int:
    arguments = parsed()
    try:
        if arguments.command == "show":
            show(arguments)
        else:
            run_interruptible(search(arguments) if arguments.command == "search" else judge(arguments))
    except (GamesError, JournalError, KeptError, PlayerError, SettingsError) as error:
        print(f"move_quality {arguments.command}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("move_quality: interrupted; the same command goes on", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

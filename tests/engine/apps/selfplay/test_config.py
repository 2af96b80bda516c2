# SPDX-License-Identifier: GPL-3.0-or-later
"""Self-play's configuration: the shipped file, flags, mistakes, and what makes two runs the same."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from engine.apps.games.openings import OpeningSettings
from engine.apps.selfplay.config import SELFPLAY_OPTIONS, Resignation, SelfPlayConfig, selfplay_config
from engine.commands import selfplay
from engine.commands.selfplay import config_of_arguments
from engine.options import OptionError, Options
from tests.engine.flags import parser_of
from tests.paths import REPOSITORY

SHIPPED = REPOSITORY / "configs" / "selfplay.toml"


def of_flags(*words: str) -> SelfPlayConfig:
    return config_of_arguments(parser_of(selfplay).parse_args(words))


def test_the_shipped_file_shows_every_default() -> None:
    document = tomllib.loads(SHIPPED.read_text())
    assert selfplay_config(document, "shipped") == SelfPlayConfig() == selfplay_config({}, "empty")
    for kind, table in ((SelfPlayConfig, document), (OpeningSettings, document["openings"])):
        names = {entry.name for entry in fields(kind)} - {"options"}
        assert names == set(table) - {"engine"}
    assert {entry.name for entry in fields(Resignation)} == set(document["resign"])
    changed = {
        entry.name
        for entry in fields(Options)
        if getattr(SELFPLAY_OPTIONS, entry.name) != getattr(Options(), entry.name)
    }
    assert changed == set(document["engine"])


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "night.toml"
    file.write_text('games = 7\nnodes = 100\n[engine]\nbackend = "random"\ntemperature = 0.5\n')
    config = of_flags(str(file), "--nodes", "200", "--engine", "temperature=0.9", "--openings", "startpos")
    assert (config.games, config.nodes, config.output) == (7, 200, "night")
    assert (config.options.backend, config.options.temperature) == ("random", 0.9)
    assert config.openings.file == "startpos"
    assert of_flags("--chess960", "--output", "x").options.chess960


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"gmaes": 3}, "did you mean 'games'"),
        ({"games": -1}, "games is a whole number from 0"),
        ({"nodes": 2.5}, "nodes is a whole number"),
        ({"nodes_spread": 2}, "nodes_spread is a number from 0 to 1"),
        ({"resign": {"percent": 80}}, "percent is a number from 0 to 50"),
        ({"resign": 3}, "table"),
        ({"openings": {"order": "sorted"}}, "order is one of random, sequential"),
        ({"engine": {"temperature": -1}}, "Temperature is a number from 0 to 100"),
        ({"output": " "}, "output is the name of a folder"),
    ],
)
def test_mistakes_are_named(document: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        selfplay_config(document, "run.toml")


def test_identity_has_the_settings_of_games(tmp_path: Path) -> None:
    base = SelfPlayConfig()
    same = SelfPlayConfig(
        games=5,
        concurrency=9,
        output="elsewhere",
        options=SELFPLAY_OPTIONS.changed(backend="reference", evaluator="tcp://127.0.0.1:5", threads=2),
    )
    assert same.identity() == base.identity()
    nonsense = SelfPlayConfig(options=SELFPLAY_OPTIONS.changed(backend="random"))
    assert nonsense.identity() != base.identity()
    assert SelfPlayConfig(nodes=3).identity() != base.identity()
    assert SelfPlayConfig(options=SELFPLAY_OPTIONS.changed(cpuct=2.0)).identity() != base.identity()

    networks = [tmp_path / name for name in ("a.pb.gz", "b.pb.gz", "copy of a.pb.gz")]
    for network, content in zip(networks, (b"a", b"b", b"a"), strict=True):
        network.write_bytes(content)
    a, b, copy = (
        SelfPlayConfig(options=SELFPLAY_OPTIONS.changed(weights=str(network))).identity()
        for network in networks
    )
    assert a == copy != b

    book = tmp_path / "book.epd"
    with_book = SelfPlayConfig(openings=OpeningSettings(str(book)))
    book.write_text("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", "utf-8")
    first = with_book.identity()
    book.write_text("4k3/8/8/8/8/8/8/R3K3 w - - 0 1", "utf-8")
    assert with_book.identity() != first

"""The table of settings and what is made from it."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

import pytest

from evaluator.settings import SETTINGS, Settings, SettingsError, add_flags, from_arguments, read_file, toml
from tests.paths import REPOSITORY


def parse(*arguments: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return from_arguments(parser.parse_args(arguments))


def test_the_shipped_file_shows_every_default() -> None:
    text = (REPOSITORY / "configs" / "evaluator.toml").read_text("utf-8")
    assert text == toml(), (
        "make it anew: python -c 'from evaluator.settings import toml; print(toml(), end=\"\")'"
    )
    assert tomllib.loads(text) == {setting.name: setting.default for setting in SETTINGS}


def test_the_shipped_file_changes_nothing() -> None:
    assert parse("--config", str(REPOSITORY / "configs" / "evaluator.toml")) == parse()


def test_a_flag_beats_the_file_and_the_file_the_default(tmp_path: Path) -> None:
    file = tmp_path / "evaluator.toml"
    file.write_text('threads = 3\nbackend = ["random"]\nlatency_cache = false\n')
    settings = parse("--config", str(file), "--threads", "5")
    assert (settings.threads, settings.backend, settings.latency_cache) == (5, ("random",), False)
    assert settings.max_request == parse().max_request


def test_repeated_flags_make_a_list() -> None:
    assert parse("--network", "a.pb", "--network", "b.pb").network == ("a.pb", "b.pb")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("thread = 1", "unknown setting 'thread'"),
        ("threads = 1.5", "threads"),
        ("threads = true", "threads"),
        ("threads = -1", "threads"),
        ("backend = []", "backend"),
        ('backend = "onnx"', "backend"),
        ("metrics_port = 70000", "65535"),
        ("play_latency_ms = nan", "play_latency_ms"),
        ('log_level = "loud"', "one of"),
        ("threads = ", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "evaluator.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=said) as caught:
        read_file(file)
    assert str(file) in str(caught.value)

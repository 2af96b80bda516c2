# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of settings and what is made from it."""

import argparse
import tomllib
from pathlib import Path

import pytest

from evaluator.settings import Settings, add_flags, from_arguments
from protocol.common.settings.spec import SettingsError, settings_of
from protocol.wire.messages import WIRE_MAX_POSITIONS
from tests.paths import REPOSITORY


def parse(*arguments: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return from_arguments(parser.parse_args(arguments))


def test_the_shipped_file_shows_every_default() -> None:
    file = REPOSITORY / "configs" / "evaluator.toml"
    assert set(tomllib.loads(file.read_text("utf-8"))) == set(settings_of(Settings))
    assert parse("--config", str(file)) == parse() == Settings()


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
        ("thread = 1", "no such setting: 'thread'; did you mean 'threads'"),
        ("colour = 1", "no such setting: 'colour'$"),
        ("threads = -1", "threads is a whole number from 0 on, not -1"),
        ('threads = "1"', "threads is a whole number from 0 on, not '1'"),
        ('backend = "onnx"', "backend is a list of at least one text, none of them empty, not 'onnx'"),
        ("metrics_port = 70000", "metrics_port is a whole number from 0 to 65,535, not 70000"),
        ("play_latency_ms = nan", "play_latency_ms is a number from 0.1 on, not nan"),
        ("threads = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "evaluator.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=said) as caught:
        parse("--config", str(file))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--threads", "many"), "--threads: threads is a whole number from 0 on, not 'many'"),
        (("--backend", ""), "--backend: backend is a list of at least one text"),
        (("--play-latency-ms", "0"), "--play-latency-ms: play_latency_ms is a number from 0.1 on, not 0"),
    ],
)
def test_a_wrong_flag_is_refused_by_name(flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        parse(*flags)


def test_a_setting_that_is_on_or_off_has_two_flags() -> None:
    assert (parse("--plain-admin").plain_admin, parse("--no-latency-cache").latency_cache) == (True, False)


def test_no_request_is_larger_than_a_client_can_send() -> None:
    assert settings_of(Settings)["max_request"].high == WIRE_MAX_POSITIONS

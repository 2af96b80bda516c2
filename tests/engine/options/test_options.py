# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of options and what is made from it."""

import argparse
import tomllib
from pathlib import Path

import pytest

from engine.evaluation.link.process import EvaluatorSettings
from engine.options import OPTIONS, AliasValues, OptionError, Options
from engine.options.flags import default_toml, engine_flags, options_of_arguments
from engine.uci.text import option_line
from protocol.common.commands import declare
from protocol.common.settings.sources import read_toml
from protocol.common.settings.spec import Setting, Value
from tests.paths import REPOSITORY


def other_value(spec: Setting) -> Value:
    """A value that the option takes and that is not its default."""
    if isinstance(spec.default, bool):
        return not spec.default
    if isinstance(spec.default, int | float):
        return type(spec.default)(min(spec.low + 1, spec.high) if spec.default == spec.low else spec.low)
    if spec.reader is not None:
        return {
            "backend": "gpu:device=amd:0",
            "evaluator": "tcp://a:5577, ipc:///run/b",
            "contempt": "Name=30, 5",
            "book_file": __file__,
        }[spec.name]
    return spec.choices[-1] if spec.choices else "some text with spaces"


@pytest.mark.parametrize("spec", OPTIONS, ids=lambda spec: spec.title)
def test_every_option_round_trips_through_uci(spec: Setting) -> None:
    value = other_value(spec)
    assert value != spec.default
    options = Options().with_uci(spec.title.upper(), spec.text(value))
    assert getattr(options, spec.name) == value
    assert options.with_uci(spec.title, spec.text(spec.default)) == Options()


@pytest.mark.parametrize("spec", OPTIONS, ids=lambda spec: spec.title)
def test_every_option_round_trips_through_its_flag(spec: Setting) -> None:
    parser = argparse.ArgumentParser()
    declare(parser, engine_flags())
    value = other_value(spec)
    arguments = parser.parse_args([f"{spec.flag}={spec.text(value)}"])
    assert getattr(options_of_arguments(arguments), spec.name) == value


def test_every_option_round_trips_through_toml(tmp_path: Path) -> None:
    lines = []
    for spec in OPTIONS:
        value = other_value(spec)
        lines.append(f"{spec.name} = " + (f"'{value}'" if isinstance(value, str) else spec.text(value)))
    file = tmp_path / "options.toml"
    file.write_text("\n".join(lines))
    options = read_toml(file, Options())
    assert all(getattr(options, spec.name) == other_value(spec) for spec in OPTIONS)


def test_the_shipped_configuration_shows_every_default() -> None:
    text = (REPOSITORY / "configs" / "engine.toml").read_text()
    assert text == default_toml(), "regenerate it: python run_engine.py options > configs/engine.toml"
    shown = {key: value for section in tomllib.loads(text).values() for key, value in section.items()}
    assert shown == {spec.name: spec.default for spec in OPTIONS}
    assert read_toml(REPOSITORY / "configs" / "engine.toml", Options()) == Options()


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text("[search]\ncpuct = 2.5\nmultipv = 3\n")
    parser = argparse.ArgumentParser()
    declare(parser, engine_flags())
    options = options_of_arguments(parser.parse_args(["--config", str(file), "--multipv", "5"]))
    assert (options.cpuct, options.multipv) == (2.5, 5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("MultiPV", "0", "MultiPV is a whole number from 1 to 500, not 0"),
        ("MultiPV", "two", "MultiPV is a whole number from 1 to 500, not 'two'"),
        ("MultiPV", "9" * 400, "MultiPV is"),
        ("MultiPV", "9" * 5000, "MultiPV is"),
        ("CPuct", "nan", "CPuct is a number from 0 to 100, not 'nan'"),
        ("CPuct", "1e999", "CPuct is a number from"),
        ("CPuct", "", "CPuct is a number"),
        ("UCI_ShowWDL", "perhaps", "UCI_ShowWDL is true or false"),
        ("HistoryFill", "sometimes", "HistoryFill is one of no, fen_only, always"),
        ("Contempt Mode", "1", "no such option: 'Contempt Mode'; did you mean 'ContemptMode'?"),
        ("Treads", "1", "no such option: 'Treads'; did you mean 'Threads'?"),
    ],
)
def test_a_bad_value_is_refused_with_a_reason(name: str, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options().with_uci(name, text)


@pytest.mark.parametrize("value", ["3", 2.5, True, None])
def test_python_values_must_have_the_option_s_type(value: object) -> None:
    with pytest.raises(OptionError, match="MultiPV"):
        Options().changed(multipv=value)


def test_a_whole_number_will_do_for_a_real_one() -> None:
    value = Options().changed(cpuct=2).cpuct
    assert (value, type(value)) == (2.0, float)


def test_a_misspelt_attribute_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="'multipv'"):
        Options().changed(multi_pv=2)


@pytest.mark.parametrize("text", ["multipv = ", "multipv = 'x'", "nonsense = 1", "\x00"])
def test_a_bad_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=r"bad\.toml"):
        read_toml(file, Options())
    with pytest.raises(OptionError, match="cannot read"):
        read_toml(tmp_path / "missing.toml", Options())


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("NNCacheSize", "2000000", "Hash"),
        ("TimeManager", "smooth", "Slowmover"),
        ("BackendOptions", "gpu=0", "Backend"),
        ("NodesPerSecondLimit", "100", "Slowmover"),
        ("ConfigFile", "lc0.config", "--config"),
        ("Backend", "cuda-fp16", "gpu"),
        ("Backend", "eigen", "onnx"),
    ],
)
def test_names_of_lc0_are_answered_with_what_to_use(name: str, value: str, instead: str) -> None:
    with pytest.raises(OptionError, match="of lc0") as raised:
        Options().with_uci(name, value)
    assert instead in str(raised.value)


def test_autodiscover_is_an_included_network() -> None:
    options = Options().with_uci("WeightsFile", "<autodiscover>")
    assert EvaluatorSettings.of(options) == EvaluatorSettings.of(Options())


def test_empty_texts_follow_the_uci_convention() -> None:
    options = Options().with_uci("WeightsFile", "a file.pb.gz")
    assert options.with_uci("WeightsFile", "<empty>").weights == ""


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("weights", "WeightsFile type string default <empty>"),
        ("cpuct", "CPuct type string default 1.745"),
        ("ponder", "Ponder type check default false"),
        ("threads", "Threads type spin default 0 min 0 max 256"),
        ("fpu_strategy", "FpuStrategy type combo default reduction var reduction var absolute"),
    ],
)
def test_uci_is_reported_what_an_option_takes(name: str, line: str) -> None:
    assert option_line(Options.setting(name)) == f"option name {line}"


def test_default_of_an_alias_keeps_the_value_of_its_option() -> None:
    """Scid sets all options that are listed, so it sends `Move Overhead value 100` after the user's value."""
    values = AliasValues()
    options = Options().with_uci("MoveOverheadMs", "500")
    assert not values.repeated("MoveOverheadMs", options)
    assert values.repeated("Move Overhead", options.with_uci("Move Overhead", "100"))
    assert not values.repeated("move overhead", options.with_uci("move overhead", "250"))
    assert not values.repeated("Move Overhead", options.with_uci("Move Overhead", "100"))
